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

/// What is known of a [`Kind`].
struct KindRow {
    name: &'static str,
    title: &'static str,
    help: &'static str,
    is_of_fabric: bool,
    quotes_caller: bool,
}

/// Fabric failed.
const fn of_fabric(name: &'static str, title: &'static str, help: &'static str) -> KindRow {
    KindRow {
        is_of_fabric: true,
        ..of_caller(name, title, help)
    }
}

/// The caller, or this server.
const fn of_caller(name: &'static str, title: &'static str, help: &'static str) -> KindRow {
    KindRow {
        name,
        title,
        help,
        is_of_fabric: false,
        quotes_caller: false,
    }
}

/// The detail quotes what the caller sent.
const fn quoting(row: KindRow) -> KindRow {
    KindRow {
        quotes_caller: true,
        ..row
    }
}

table! {
    /// The kind of failure. Each has a URN, `urn:fabric-mcp:error:…`.
    Kind: KindRow {
        /// No connection, DNS, TLS, connect timeout, no answer in time to anything but a run; 502, 503, 504.
        ApiUnavailable = of_fabric(
            "fabric-api-unavailable",
            "Fabric cannot be reached",
            "Fabric cannot be reached: no connection, DNS, TLS, no answer in time to anything but a \
             run, or 502, 503, 504",
        );
        /// 401 and 403.
        ApiUnauthorized = of_fabric(
            "fabric-api-unauthorized",
            "No valid API key for Fabric",
            "Fabric's API key is missing or wrong: 401, 403",
        );
        /// Any other 5xx.
        FabricInternal = of_fabric(
            "fabric-internal-error",
            "Fabric failed",
            "Fabric failed: another 5xx",
        );
        /// 429 and other 4xx, a redirect, an unreadable or unexpected body, a 200 that is not a run, an `error` event,
        /// `complete` without content.
        ApiError = of_fabric(
            "fabric-api-error",
            "Fabric answered with an error",
            "Fabric answered with an error, or with something that is not an answer",
        );
        /// A run that sent no content within the idle time.
        Timeout = of_fabric(
            "fabric-timeout",
            "The run went silent",
            "Fabric took the run and sent no content within --idle-timeout: the model may have failed",
        );
        /// The stream ended before `complete`, was silent for too long after content, or hit the run's time limit.
        StreamInterrupted = of_fabric(
            "fabric-stream-interrupted",
            "Fabric's answer was cut short",
            "The output was cut short; what had arrived is kept in the result",
        );
        /// A size limit was hit.
        ResponseTooLarge = of_caller(
            "response-too-large",
            "The answer is too large",
            "A limit on sizes",
        );
        /// Fabric does not list the pattern.
        PatternNotFound = quoting(of_caller(
            "pattern-not-found",
            "No such pattern",
            "No such pattern; those that may be meant are suggested",
        ));
        /// An invalid name, variable, argument or pattern.
        InvalidRequest = quoting(of_caller(
            "invalid-request",
            "The request was refused",
            "An argument, name, variable or pattern was refused",
        ));
        /// The caller's role does not allow it.
        Forbidden = of_caller(
            "forbidden",
            "Not allowed",
            "The caller's role or scope does not allow it",
        );
        /// Workers and queue are full, or the rate limit was hit.
        TooManyRequests = of_caller(
            "too-many-requests",
            "Too many requests",
            "Too many runs at once, or in a minute",
        );
        /// The caller cancelled.
        Cancelled = quoting(of_caller("cancelled", "Cancelled", "The caller cancelled"));
        /// A bug of ours, a panic included; or this machine failed: it has no thread or no disk space left.
        Internal = of_caller(
            "internal-server-error",
            "Internal error",
            "A bug of fabric-mcp",
        );
    }
}

impl Kind {
    /// The last part of the URN; also the label in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        self.row().name
    }

    /// The kind of that [`Kind::name`].
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// A short title for people, the same for every failure of this kind.
    pub(crate) fn title(self) -> &'static str {
        self.row().title
    }

    /// What `--help errors` says of it.
    pub(crate) fn help(self) -> &'static str {
        self.row().help
    }

    /// Did Fabric fail, rather than the caller, this server or one of its limits?
    pub(crate) fn is_of_fabric(self) -> bool {
        self.row().is_of_fabric
    }

    /// Does the detail of such an error quote what the caller sent?
    pub(crate) fn quotes_caller(self) -> bool {
        self.row().quotes_caller
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

/// What is known of a [`Cause`]: the words of it, for results, `--check` and `--help problems` alike.
struct CauseRow {
    /// Identifies it to scripts of `--check`, and never changes; empty for the name of the error's [`Kind`].
    code: &'static str,
    /// What happened and why: sentences with `{url}`, `{request}`, `{status}`, `{limit}` (seconds) or `{why}`.
    what: &'static str,
    /// What to do.
    fix: &'static str,
    /// Whether `--check` fails because of it.
    is_error: bool,
}

const fn problem(code: &'static str, what: &'static str, fix: &'static str) -> CauseRow {
    CauseRow {
        code,
        what,
        fix,
        is_error: true,
    }
}

/// What does not fail the check.
const fn warning(code: &'static str, what: &'static str, fix: &'static str) -> CauseRow {
    CauseRow {
        is_error: false,
        ..problem(code, what, fix)
    }
}

table! {
    /// Why Fabric could not be used, or not as it should be. Finer than [`Kind`].
    Cause: CauseRow {
        /// Nothing listens on that port.
        Refused = problem(
            "connection-refused",
            "Nothing listens at {url}.",
            "Start `fabric --serve`; if it runs, set FABRIC_BASE_URL to the host and port it \
             prints.",
        );
        /// The same, and a Fabric was `{found}` on its default port.
        Elsewhere = problem(
            "connection-refused",
            "Nothing listens at {url}, but a Fabric answers at {found}.",
            "Set FABRIC_BASE_URL to that address.",
        );
        /// No connection, for `{why}`.
        NoConnection = problem(
            "",
            "No connection to Fabric at {url} ({why}).",
            "Check the network between here and Fabric, and that `fabric --serve` runs.",
        );
        /// The host's name cannot be resolved.
        UnknownHost = problem(
            "unknown-host",
            "The host name in {url} cannot be resolved.",
            "Correct the name in FABRIC_BASE_URL, or fix this machine's DNS; `getent hosts NAME` \
             tests it.",
        );
        /// No connection within the connect timeout.
        ConnectTimeout = problem(
            "connect-timeout",
            "{url} does not accept the connection within {limit} s: the host is off, or a \
             firewall drops it.",
            "Check the host and port in FABRIC_BASE_URL and the firewall; a slow network needs a \
             longer --connect-timeout.",
        );
        /// Connected, but no answer in time.
        Silent = problem(
            "no-answer",
            "Fabric at {url} did not answer {request} within {limit} s ({flag}).",
            "Restart `fabric --serve` if it hangs; if it is only slow, raise that limit.",
        );
        /// The answer began, but did not end in time.
        Unfinished = problem(
            "",
            "Fabric at {url} did not finish {request} within {limit} s ({flag}).",
            "If that is how slow it is, raise that limit.",
        );
        /// A run took longer than it may: our limit, and no failure of Fabric.
        RunTimeout = problem(
            "",
            "The run at Fabric ({url}) took longer than {limit} s ({flag}), so it was ended.",
            "Ask for less, or raise that limit.",
        );
        /// The request was not read in time.
        Unread = problem(
            "no-answer",
            "Fabric at {url} stopped taking in {request}.",
            "Restart `fabric --serve` if it hangs; a slow network needs a longer \
             --request-timeout.",
        );
        /// A run that sent nothing for too long.
        RunSilent = problem(
            "",
            "Fabric at {url} was silent for {limit} s during the run: the model may have failed; \
             Fabric's own log tells.",
            "A slower model needs a longer --idle-timeout.",
        );
        /// The answer ended too early.
        BrokeOff = problem(
            "",
            "The connection to Fabric at {url} broke off in the middle of the answer to {request}.",
            "Try again if the rest is needed; if it happens again, the logs of Fabric, and of a \
             proxy before it, tell why.",
        );
        /// The proxy from the environment does not connect, for `{why}`.
        Proxy = problem(
            "proxy-failed",
            "The proxy that ALL_PROXY, HTTPS_PROXY or HTTP_PROXY names does not connect to \
             Fabric at {url}: {why}.",
            "Correct that variable; if Fabric needs no proxy, add its host to NO_PROXY.",
        );
        /// The certificate has expired, or this machine's clock is fast.
        CertificateExpired = problem(
            "certificate-expired",
            "The certificate at {url} has expired, or this machine's clock is fast.",
            "Check the clock with `date -u`; if it is right, renew the certificate.",
        );
        /// The certificate is not valid yet, or this machine's clock is slow.
        CertificateNotYetValid = problem(
            "certificate-not-yet-valid",
            "The certificate at {url} is not valid yet, or this machine's clock is slow.",
            "Check the clock with `date -u`, and set it.",
        );
        /// The certificate's issuer is not trusted here.
        CertificateUnknownIssuer = problem(
            "certificate-unknown-issuer",
            "The certificate at {url} comes from an authority that is not trusted here.",
            "Set SSL_CERT_FILE to a PEM file with that authority's certificate.",
        );
        /// The certificate is an authority's (`CA:TRUE`), which TLS does not take as a server's own.
        CertificateOfAuthority = problem(
            "certificate-of-authority",
            "The server at {url} shows an authority's certificate (CA:TRUE), which cannot be a \
             server's own.",
            "Make one by `openssl req -x509 -addext basicConstraints=CA:FALSE -addext \
             subjectAltName=DNS:HOST` (or IP:…).",
        );
        /// The certificate is for another name, which `{why}` may tell.
        CertificateWrongName = problem(
            "certificate-wrong-name",
            "The certificate at {url} is for another host name ({why}).",
            "Use the name of the certificate in FABRIC_BASE_URL.",
        );
        /// The peer does not speak TLS.
        NotTls = problem(
            "not-tls",
            "What listens at {url} does not speak TLS.",
            "Write http:// instead of https:// in FABRIC_BASE_URL, or correct its port.",
        );
        /// The peer answers that it speaks TLS only.
        WantsTls = problem(
            "wants-tls",
            "What listens at {url} wants TLS (HTTP 400).",
            "Write https:// instead of http:// in FABRIC_BASE_URL, or correct its port.",
        );
        /// TLS failed in another way.
        Tls = problem(
            "tls-failed",
            "No secure connection to Fabric at {url}: {why}.",
            "Check the proxy or server that ends TLS before Fabric, and whether it is https at \
             all.",
        );
        /// The peer closes the connection at once.
        Closed = problem(
            "not-http",
            "Fabric at {url} closed the connection without an answer to {request}.",
            "Fabric's own log may tell why; if another program listens there, correct the port \
             in FABRIC_BASE_URL, or write https:// if TLS is spoken there.",
        );
        /// The same where TLS should be spoken.
        ClosedTls = problem(
            "not-tls",
            "What listens at {url} closed the connection without an answer to {request}.",
            "Write http:// instead of https:// in FABRIC_BASE_URL if it does not speak TLS, or \
             correct its port; else Fabric's own log may tell why.",
        );
        /// The peer does not speak HTTP.
        NotHttp = problem(
            "not-http",
            "What listens at {url} does not answer in HTTP.",
            "Correct the port in FABRIC_BASE_URL, or write https:// if TLS is spoken there.",
        );
        /// A web page.
        WebPage = problem(
            "web-page",
            "{url} answers {request} with a web page: a proxy, a login page or another program.",
            "Set FABRIC_BASE_URL to the address of `fabric --serve` itself, with the path under \
             which a proxy has it.",
        );
        /// An answer that is compressed.
        Compressed = problem(
            "",
            "The answer to {request} from {url} came compressed, which was not asked for: a \
             proxy may be answering there.",
            "Switch its compression off, or let FABRIC_BASE_URL name Fabric itself.",
        );
        /// A redirect.
        Redirect = problem(
            "redirect",
            "{url} answers {request} with a redirect (HTTP {status}), which is not followed: the \
             key would go along.",
            "Set FABRIC_BASE_URL to where it leads; `curl -sI URL` shows that.",
        );
        /// 401 or 403, and no key was sent.
        KeyMissing = problem(
            "key-missing",
            "Fabric at {url} wants an API key (HTTP {status}), and FABRIC_API_KEY is not set.",
            "Set FABRIC_API_KEY to the key that `fabric --serve --api-key` was given; for a \
             client, in its env: your shell's variables may not reach it.",
        );
        /// 401 or 403 in spite of the key.
        KeyRefused = problem(
            "key-refused",
            "Fabric at {url} refuses the key in FABRIC_API_KEY (HTTP {status}).",
            "Set FABRIC_API_KEY to the key that `fabric --serve --api-key` was given; it may \
             have changed.",
        );
        /// The same, and the key reads like a placeholder.
        KeyPlaceholder = problem(
            "key-placeholder",
            "Fabric at {url} refuses the key (HTTP {status}): FABRIC_API_KEY holds a placeholder \
             that nothing has replaced.",
            "Put the key itself there, in the client's env; or start the client from a shell \
             where FABRIC_API_KEY is set.",
        );
        /// 404: another program, or another path.
        NotFound = problem(
            "not-found",
            "Fabric at {url} does not know {request} (HTTP 404).",
            "Check the name, and the port and path in FABRIC_BASE_URL: another program may \
             listen there, and without a proxy there is no path.",
        );
        /// 429.
        Busy = problem(
            "",
            "Fabric at {url} gets too many requests (HTTP 429).",
            "Try again {later}.",
        );
        /// Another 4xx.
        RefusedRequest = problem(
            "",
            "Fabric at {url} refused {request} (HTTP {status}).",
            "Look into Fabric's own log: it tells why.",
        );
        /// 502, 503 or 504: a proxy answers, but Fabric does not.
        BadGateway = problem(
            "bad-gateway",
            "A proxy answers at {url}, but it does not reach Fabric (HTTP {status}).",
            "Try again {later}; if it stays so, start `fabric --serve` behind the proxy, and \
             check the address the proxy has for it.",
        );
        /// Another 5xx.
        Failed = problem(
            "",
            "Fabric at {url} failed on {request} (HTTP {status}).",
            "Look into Fabric's own log: it tells why.",
        );
        /// An answer that is not Fabric's.
        NotFabric = problem(
            "not-fabric",
            "{url} answers {request} with something that is not Fabric's: another program or a \
             proxy may listen there, or this version of Fabric is too old or too new.",
            "Check FABRIC_BASE_URL before you try again; if it is Fabric, update it or fabric-mcp.",
        );
        /// The head of the answer is too large.
        HeadTooLarge = problem(
            "",
            "The headers of the answer to {request} from {url} are too large.",
            "Check whether FABRIC_BASE_URL names Fabric itself.",
        );
        /// The system gives no thread for looking the name up.
        NoThread = problem(
            "",
            "The system has no thread to look up a host name for {url}: nothing was sent.",
            "Try again in a moment.",
        );
        /// The system gives no socket, for `{why}`. Restarting Fabric does not help.
        NoSocket = problem(
            "",
            "This machine let us open no further connection to Fabric at {url}: {why}.",
            "Raise its limit on open files, or lower --max-runs and --max-connections.",
        );
        /// Found by `--check`: the list is empty.
        NoPatterns = problem(
            "no-patterns",
            "Fabric has no patterns, so nothing can be run.",
            "Fetch them on Fabric's machine with `fabric --updatepatterns`, then restart `fabric \
             --serve`.",
        );
        /// Found by `--check`: the key is not needed.
        KeyNotAskedFor = warning(
            "key-not-asked-for",
            "FABRIC_API_KEY is set, but Fabric answers without it too: whoever reaches its \
             address can use it.",
            "Start it with `fabric --serve --api-key KEY`, or unset FABRIC_API_KEY.",
        );
        /// Found by `--check`: the list is empty.
        NoModels = warning(
            "no-models",
            "Fabric lists no models: no vendor is set up, or none of them answers.",
            "Set one up on Fabric's machine with `fabric --setup`, then restart `fabric --serve`.",
        );
        /// Found by `--check`: every version answers with a 500 without a vendor.
        NoVendor = problem(
            "no-vendor",
            "Fabric cannot list its models (HTTP 500).",
            "If no vendor is set up, do that on Fabric's machine with `fabric --setup`, then \
             restart it; else its own log tells why.",
        );
        /// There are only folders of patterns.
        NeedsFabric = problem(
            "no-fabric",
            "This needs a Fabric, and this server has none: it reads patterns from folders \
             (--patterns-dir).",
            "Read the pattern with fabric_get_pattern_details and follow it yourself, or start \
             the server with --fabric-url instead of --patterns-dir.",
        );
        /// The folder is not there.
        NoStrategies = warning(
            "no-strategies",
            "Fabric has no strategies: it cannot read their folder (HTTP 500), which mostly \
             means that they were never fetched.",
            "Run `fabric --setup` on Fabric's host and choose Strategies there.",
        );
        /// Found by `--check`: as configured.
        OldFabric = warning(
            "old-fabric",
            "This looks like an old Fabric. Before v1.4.367 the text of a run comes in one piece \
             at its end; before v1.4.442 a cancelled run goes on, and is paid for.",
            "Update Fabric on its machine; fabric-mcp works with it as it is.",
        );
        /// Found by `--check`: they cannot be listed, for `{why}`.
        StrategiesUnread = warning(
            "no-strategies",
            "Fabric cannot list its strategies; runs without one work. {why}",
            "{fix}",
        );
        /// Found by `--check`: it cannot be read, for `{why}`.
        NoConfiguration = warning(
            "no-configuration",
            "fabric_get_configuration will fail. {why}",
            "{fix}",
        );
        /// Found by `--check`: what the command line warns of.
        Settings = warning(
            "settings",
            "{why}",
            "Change the setting, or leave it so knowingly.",
        );
        /// Found by `--check`: the issuer gives no usable answer, for `{why}`.
        OAuthIssuer = problem(
            "oauth-issuer",
            "OAuth callers cannot come in: {why}.",
            "Check --oauth-issuer, and whether it can be reached from here; fabric-mcp --help \
             oauth tells what to set up there.",
        );
        /// Found by `--check`: the demo does not work, for `{why}`.
        DemoRun = problem(
            "demo-run",
            "The demo's run failed: {why}.",
            "This is a bug of fabric-mcp: please report it.",
        );
    }
}

impl Cause {
    /// What happened and why, with holes in braces.
    pub(crate) fn what(self) -> &'static str {
        self.row().what
    }

    /// What to do, with holes in braces.
    pub(crate) fn fix(self) -> &'static str {
        self.row().fix
    }

    /// Whether `--check` fails because of it.
    pub(crate) fn is_error(self) -> bool {
        self.row().is_error
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what(), self.fix())
    }
}

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

    /// The same error, about this argument. The part that the tool knows: what follows may be the caller's text.
    pub(crate) fn about(self, argument: impl Into<Box<str>>) -> Error {
        Error {
            argument: Some(argument.into()),
            ..self
        }
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

    /// What identifies the failure in the report of `--check`; stable.
    pub(crate) fn code(&self) -> &'static str {
        match self.cause.map(|cause| cause.row().code) {
            None | Some("") => self.kind.name(),
            Some(code) => code,
        }
    }

    /// What happened.
    pub(crate) fn what(&self) -> &str {
        self.parts().0.trim_end()
    }

    /// What to do.
    pub(crate) fn fix(&self) -> &str {
        match self.parts().1 {
            "" => "Look into Fabric's own log.",
            fix => fix,
        }
    }

    fn parts(&self) -> (&str, &str) {
        let end = self.detail.len().saturating_sub(self.fix);
        self.detail
            .split_at_checked(end)
            .unwrap_or((&self.detail, ""))
    }

    /// The same error with the HTTP status that led to it.
    pub(crate) fn after_status(self, status: u16) -> Error {
        Error {
            status: Some(status),
            ..self
        }
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
        for cause in Cause::ALL {
            let (code, what, fix) = (cause.row().code, cause.what(), cause.fix());
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
        assert_eq!(error.what(), "Nothing listens at http://f:1.");
        assert!(error.fix().starts_with("Start `fabric --serve`"), "{error}");
        assert_eq!(error.detail, format!("{} {}", error.what(), error.fix()));
        let failed = Error::of(Kind::FabricInternal, Cause::Failed, &[]);
        assert_eq!(failed.code(), "fabric-internal-error");
        let other = Error::new(Kind::FabricInternal, "It failed.");
        assert_eq!(
            (other.code(), other.what(), other.fix()),
            (
                "fabric-internal-error",
                "It failed.",
                "Look into Fabric's own log."
            )
        );
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
