//! The one error type of a call: its kind, with a URN, and a sentence that is safe to show.
//!
//! Not in scope: how a JSON-RPC error or a tool's result carries it (`protocol`, `tools`), and detecting failures. A
//! `detail` never holds a key, a path of any host, or the body of an HTTP error as it came.

use std::fmt;
use std::time::Duration;

/// Declares an enum as a table: one row a variant, from which everything else follows, [`ALL`](Kind::ALL) too.
macro_rules! table {
    ($(#[$about:meta])* $name:ident: $row:ty { $($(#[$doc:meta])* $variant:ident = $facts:expr;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every one, in this order.
            #[allow(dead_code, reason = "not every table is listed")]
            pub(crate) const ALL: [$name; [$($name::$variant),+].len()] = [$($name::$variant),+];

            const fn row(self) -> $row {
                match self {
                    $($name::$variant => $facts,)+
                }
            }
        }
    };
}

pub(crate) use table;

/// Whose failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Fabric failed.
    Fabric,
    /// What the caller sent or did; the detail may quote it.
    Caller,
    /// This server, or one of its limits.
    Server,
}

/// Of each [`Kind`]: its name, its title, and what `--help errors` says of it.
const KINDS: &str = include_str!("kinds.txt");

table! {
    /// The kind of failure. Each has a URN, `urn:fabric-mcp:error:…`, whose last part is in its row.
    Kind: (&'static str, Origin) {
        /// No connection, DNS, TLS, connect timeout, no answer in time to anything but a run; 502, 503, 504.
        ApiUnavailable = ("fabric-api-unavailable", Origin::Fabric);
        /// 401 and 403.
        ApiUnauthorized = ("fabric-api-unauthorized", Origin::Fabric);
        /// Any other 5xx.
        FabricInternal = ("fabric-internal-error", Origin::Fabric);
        /// 429 and other 4xx, a redirect, an unreadable or unexpected body, a 200 that is not a run, an `error` event,
        /// `complete` without content.
        ApiError = ("fabric-api-error", Origin::Fabric);
        /// A run that sent no content within the idle time.
        Timeout = ("fabric-timeout", Origin::Fabric);
        /// The stream ended before `complete`, was silent for too long after content, or hit the run's time limit.
        StreamInterrupted = ("fabric-stream-interrupted", Origin::Fabric);
        /// A size limit was hit.
        ResponseTooLarge = ("response-too-large", Origin::Server);
        /// Fabric does not list the pattern.
        PatternNotFound = ("pattern-not-found", Origin::Caller);
        /// An invalid name, variable, argument or pattern.
        InvalidRequest = ("invalid-request", Origin::Caller);
        /// The caller's role does not allow it.
        Forbidden = ("forbidden", Origin::Server);
        /// Workers and queue are full, or the rate limit was hit.
        TooManyRequests = ("too-many-requests", Origin::Server);
        /// The caller cancelled.
        Cancelled = ("cancelled", Origin::Caller);
        /// A bug of ours, a panic included; or this machine failed: it has no thread or no disk space left.
        Internal = ("internal-server-error", Origin::Server);
    }
}

impl Kind {
    /// The last part of the URN; also the label in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    /// The kind of that [`Kind::name`].
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// A short title for people, the same for every failure of this kind.
    pub(crate) fn title(self) -> &'static str {
        text(KINDS, &self, 1)
    }

    /// What `--help errors` says of it.
    pub(crate) fn help(self) -> &'static str {
        text(KINDS, &self, 2)
    }

    /// Did Fabric fail?
    pub(crate) fn is_of_fabric(self) -> bool {
        self.row().1 == Origin::Fabric
    }

    /// Does the detail of such an error quote what the caller sent?
    pub(crate) fn quotes_caller(self) -> bool {
        self.row().1 == Origin::Caller
    }

    /// What an HTTP status of Fabric other than 200 means.
    pub(crate) fn from_status(status: u16) -> Kind {
        match status {
            401 | 403 => Kind::ApiUnauthorized,
            502..=504 => Kind::ApiUnavailable,
            500.. => Kind::FabricInternal,
            _ => Kind::ApiError,
        }
    }

    /// The whole URN.
    pub(crate) fn urn(self) -> String {
        format!("urn:fabric-mcp:error:{}", self.name())
    }
}

table! {
    /// Why Fabric could not be used, or not as it should be. Finer than [`Kind`]. Each has a code for scripts of `--check`,
    /// which never changes; an empty one stands for the name of the error's kind.
    Cause: &'static str {
        /// There is no Fabric to be started.
        NoProgram = "fabric-not-found";
        /// It was never set up.
        NotSetUp = "fabric-not-set-up";
        /// It does not come up, for `{why}`.
        NotStarted = "fabric-not-started";
        /// It has ended while it was asked.
        FabricEnded = "fabric-ended";
        /// Nothing listens on that port.
        Refused = "connection-refused";
        /// No connection, for `{why}`.
        NoConnection = "";
        /// The host's name cannot be resolved.
        UnknownHost = "unknown-host";
        /// No connection within the connect timeout.
        ConnectTimeout = "connect-timeout";
        /// Connected, but no answer in time.
        Silent = "no-answer";
        /// The answer began, but did not end in time.
        Unfinished = "";
        /// A run took longer than it may: our limit, and no failure of Fabric.
        RunTimeout = "";
        /// The request was not read in time.
        Unread = "no-answer";
        /// A run that sent nothing for too long.
        RunSilent = "";
        /// The answer ended too early.
        BrokeOff = "";
        /// The proxy from the environment does not connect, for `{why}`.
        Proxy = "proxy-failed";
        /// The certificate has expired, or this machine's clock is fast.
        CertificateExpired = "certificate-expired";
        /// The certificate is not valid yet, or this machine's clock is slow.
        CertificateNotYetValid = "certificate-not-yet-valid";
        /// The certificate's issuer is not trusted here.
        CertificateUnknownIssuer = "certificate-unknown-issuer";
        /// The certificate is an authority's (`CA:TRUE`), which TLS does not take as a server's own.
        CertificateOfAuthority = "certificate-of-authority";
        /// The certificate is for another name, which `{why}` may tell.
        CertificateWrongName = "certificate-wrong-name";
        /// The peer does not speak TLS.
        NotTls = "not-tls";
        /// The peer answers that it speaks TLS only.
        WantsTls = "wants-tls";
        /// TLS failed in another way.
        Tls = "tls-failed";
        /// The peer closes the connection at once.
        Closed = "not-http";
        /// The same where TLS should be spoken.
        ClosedTls = "not-tls";
        /// The peer does not speak HTTP.
        NotHttp = "not-http";
        /// A web page.
        WebPage = "web-page";
        /// An answer that is compressed.
        Compressed = "";
        /// A redirect.
        Redirect = "redirect";
        /// 401 or 403, and no key was sent.
        KeyMissing = "key-missing";
        /// 401 or 403 in spite of the key.
        KeyRefused = "key-refused";
        /// The same, and the key reads like a placeholder.
        KeyPlaceholder = "key-placeholder";
        /// 404: another program, or another path.
        NotFound = "not-found";
        /// 429.
        Busy = "";
        /// Another 4xx.
        RefusedRequest = "";
        /// 502, 503 or 504: a proxy answers, but Fabric does not.
        BadGateway = "bad-gateway";
        /// Another 5xx.
        Failed = "";
        /// An answer that is not Fabric's.
        NotFabric = "not-fabric";
        /// The head of the answer is too large.
        HeadTooLarge = "";
        /// The system gives no thread for looking the name up.
        NoThread = "";
        /// The system gives no socket, for `{why}`. Restarting Fabric does not help.
        NoSocket = "";
        /// Found by `--check`: the list is empty.
        NoPatterns = "no-patterns";
        /// Found by `--check`: the key is not needed.
        KeyNotAskedFor = "key-not-asked-for";
        /// Found by `--check`: the list is empty.
        NoModels = "no-models";
        /// Found by `--check`: every version answers with a 500 without a vendor.
        NoVendor = "no-vendor";
        /// A run that names no model, and Fabric has no default.
        NoDefaultModel = "no-default-model";
        /// There are only folders of patterns.
        NeedsFabric = "no-fabric";
        /// The folder is not there.
        NoStrategies = "no-strategies";
        /// Found by `--check`: as configured.
        OldFabric = "old-fabric";
        /// Found by `--check`: they cannot be listed, for `{why}`.
        StrategiesUnread = "no-strategies";
        /// Found by `--check`: it cannot be read, for `{why}`.
        NoConfiguration = "no-configuration";
        /// Found by `--check`: what the command line warns of.
        Settings = "settings";
        /// Found by `--check`: the issuer gives no usable answer, for `{why}`.
        OAuthIssuer = "oauth-issuer";
        /// Found by `--check`: the demo does not work, for `{why}`.
        DemoRun = "demo-run";
    }
}

/// Of each [`Cause`]: its name and severity; what happened and why, with `{url}`, `{request}`, `{status}`, `{limit}`
/// (seconds) or `{why}`; and what to do.
const CAUSES: &str = include_str!("causes.txt");

impl Cause {
    /// What happened and why, with holes in braces: for results, `--check` and `--help problems` alike.
    pub(crate) fn what(self) -> &'static str {
        text(CAUSES, &self, 1)
    }

    /// What to do, with holes in braces.
    pub(crate) fn fix(self) -> &'static str {
        text(CAUSES, &self, 2)
    }

    /// Whether `--check` fails because of it.
    pub(crate) fn is_error(self) -> bool {
        text(CAUSES, &self, 0).ends_with(" error")
    }
}

/// A line of the text about `what`, which begins with its name.
fn text(all: &'static str, what: &impl fmt::Debug, line: usize) -> &'static str {
    let name = format!("{what:?}");
    let is_other = |line: &&str| line.split(' ').next() != Some(&name);
    let text = all.lines().skip_while(is_other).nth(line);
    text.expect("a test looks for the words of each")
        .trim_start()
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what(), self.fix())
    }
}

/// Most faults of a call that are told at once.
const MOST_FAULTS: usize = 12;

/// One failure: its kind, and a sentence or two that say what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// The kind of failure.
    pub(crate) kind: Kind,
    /// Safe to show to any caller: names what was wrong and what to do next.
    pub(crate) detail: String,
    /// How much of the end of `detail` says what to do, in bytes; 0 where the two are one.
    pub(crate) fix: usize,
    /// How long to wait before a retry, if known.
    pub(crate) retry_after: Option<Duration>,
    /// The cause, where it has a row in the table.
    pub(crate) cause: Option<Cause>,
    /// The HTTP status that Fabric or a proxy answered with; for the log.
    pub(crate) status: Option<u16>,
    /// The argument that was refused; for the log.
    pub(crate) argument: Option<Box<str>>,
}

impl Error {
    /// An error of `kind`, described by `detail`.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Error {
        Error {
            kind,
            detail: detail.into(),
            fix: 0,
            retry_after: None,
            cause: None,
            status: None,
            argument: None,
        }
    }

    /// The same error, about this argument, unless it is about one already. The part that the tool knows: what follows may
    /// be the caller's text.
    pub(crate) fn about(mut self, argument: impl Into<Box<str>>) -> Error {
        self.argument.get_or_insert_with(|| argument.into());
        self
    }

    /// An error in the words of its cause, with these values in the place of `{name}`.
    pub(crate) fn of(kind: Kind, cause: Cause, values: &[(&str, &str)]) -> Error {
        let filled = |template: &str| {
            values
                .iter()
                .fold(template.to_owned(), |text, (name, value)| {
                    text.replace(&format!("{{{name}}}"), value)
                })
        };
        let fix = filled(cause.fix());
        Error {
            fix: fix.len(),
            cause: Some(cause),
            ..Error::new(kind, format!("{} {fix}", filled(cause.what())))
        }
    }

    /// All of these faults in one error of the kind of the first; those beyond [`MOST_FAULTS`] are left out.
    ///
    /// # Errors
    /// That error, if there are any.
    pub(crate) fn all(faults: Vec<Error>) -> Result<(), Error> {
        let mut faults = faults.into_iter().take(MOST_FAULTS);
        let Some(mut first) = faults.next() else {
            return Ok(());
        };
        for other in faults {
            let said = first.detail.trim_end_matches(" Nothing was run.");
            first.detail = format!("{said} {}", other.detail);
            first.fix = 0;
        }
        Err(first)
    }

    /// What identifies the failure in the report of `--check`; stable.
    pub(crate) fn code(&self) -> &'static str {
        match self.cause.map(Cause::row) {
            None | Some("") => self.kind.name(),
            Some(code) => code,
        }
    }

    /// What happened, and what to do.
    pub(crate) fn parts(&self) -> (&str, &str) {
        let end = self.detail.len().saturating_sub(self.fix);
        match self.detail.split_at_checked(end) {
            Some((what, fix)) if !fix.is_empty() => (what.trim_end(), fix),
            _ => (self.detail.trim_end(), "Look into Fabric's own log."),
        }
    }

    /// The same error with the HTTP status that led to it.
    pub(crate) fn after_status(mut self, status: u16) -> Error {
        self.status = Some(status);
        self
    }

    /// A panic.
    pub(crate) fn bug(request_id: &str) -> Error {
        let detail = "fabric-mcp itself failed: this is a bug. Please report it with the log lines of request_id";
        Error::new(Kind::Internal, format!("{detail} {request_id}."))
    }

    /// The process ends first.
    pub(crate) fn stopped() -> Error {
        let detail =
            "The server was stopped before this call had ended. Try again once it is back.";
        Error::new(Kind::Cancelled, detail)
    }

    /// The caller cancelled; nobody reads the text.
    pub(crate) fn cancelled() -> Error {
        Error::new(Kind::Cancelled, "The caller cancelled this call.")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.detail)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_urn_and_title() {
        let helps: std::collections::HashSet<_> = Kind::ALL.iter().map(|k| k.help()).collect();
        assert_eq!(
            (helps.len(), KINDS.lines().count() + 1),
            (Kind::ALL.len(), 4 * Kind::ALL.len())
        );
        let names: std::collections::HashSet<_> = Kind::ALL.iter().map(|k| k.name()).collect();
        let titles: std::collections::HashSet<_> = Kind::ALL.iter().map(|k| k.title()).collect();
        assert_eq!(
            (names.len(), titles.len()),
            (Kind::ALL.len(), Kind::ALL.len())
        );
        assert_eq!(
            Kind::ApiUnavailable.urn(),
            "urn:fabric-mcp:error:fabric-api-unavailable"
        );
    }

    #[test]
    fn every_cause_says_what_happened_and_what_to_do() {
        assert_eq!(CAUSES.lines().count() + 1, 4 * Cause::ALL.len());
        for cause in Cause::ALL {
            let (code, what, fix) = (cause.row(), cause.what(), cause.fix());
            assert!(
                cause.is_error() || text(CAUSES, &cause, 0).ends_with(" warning"),
                "{cause:?}"
            );
            let ends = |text: &str| text.ends_with(['.', '}']) || text.ends_with("(or IP:…).");
            assert!(ends(what) && ends(fix), "{cause:?}");
            assert!(
                !what.contains("  ") && !fix.contains("  ") && fix.len() <= 150,
                "{cause:?}"
            );
            assert!(
                code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{cause:?}"
            );
        }
    }

    #[test]
    fn an_error_in_the_words_of_its_cause_has_two_parts() {
        let error = Error::of(
            Kind::ApiUnavailable,
            Cause::Refused,
            &[("url", "http://f:1"), ("why", "unused")],
        );
        assert_eq!(error.code(), "connection-refused");
        let (what, fix) = error.parts();
        assert_eq!(what, "Nothing listens at http://f:1.");
        assert!(fix.starts_with("Start `fabric --serve`"), "{error}");
        assert_eq!(error.detail, format!("{what} {fix}"));
        let failed = Error::of(Kind::FabricInternal, Cause::Failed, &[]);
        assert_eq!(failed.code(), "fabric-internal-error");
        let other = Error::new(Kind::FabricInternal, "It failed.");
        assert_eq!(other.code(), "fabric-internal-error");
        let parts = ("It failed.", "Look into Fabric's own log.");
        assert_eq!(other.parts(), parts);
    }

    #[test]
    fn every_status_has_its_kind() {
        for (status, kind) in [
            (401, Kind::ApiUnauthorized),
            (403, Kind::ApiUnauthorized),
            (502, Kind::ApiUnavailable),
            (503, Kind::ApiUnavailable),
            (504, Kind::ApiUnavailable),
            (500, Kind::FabricInternal),
            (501, Kind::FabricInternal),
            (505, Kind::FabricInternal),
            (599, Kind::FabricInternal),
            (429, Kind::ApiError),
            (400, Kind::ApiError),
            (404, Kind::ApiError),
            (301, Kind::ApiError),
            (204, Kind::ApiError),
        ] {
            assert_eq!(Kind::from_status(status), kind, "{status}");
        }
    }
}
