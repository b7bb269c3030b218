//! The one error type of a call: its kind, with a URN, and a sentence that is safe to show. How it names arguments, and
//! says what to give.
//!
//! Not in scope: how a JSON-RPC error or a tool's result carries it (`protocol`, `tools`), and detecting failures. A
//! `detail` never holds a key, a path of any host, or the body of an HTTP error as it came.

use std::fmt;
use std::time::Duration;

use Severity::{Failure, Passing, Warning};

use crate::table::table;

table! {
    /// The kind of failure. Its row has the last part of its URN, `urn:fabric-mcp:error:…`, which is also its label in logs and
    /// metrics; its comment is the title that people see, and what `--help errors` says of it.
    #[derive(Default)]
    told Kind: &'static str as pub(crate) name {
        /// Fabric cannot be reached
        /// Fabric cannot be reached: the connection, DNS or TLS failed, Fabric did not answer in time (for runs, see fabric-timeout), or the status was 502 to 504 or 520 to 526
        ApiUnavailable = "fabric-api-unavailable";
        /// No valid API key for Fabric
        /// Fabric's API key is missing or wrong: status 401 or 403
        ApiUnauthorized = "fabric-api-unauthorized";
        /// Fabric failed
        /// Fabric failed with any other status of 500 or above
        FabricInternal = "fabric-internal-error";
        // 429 and other 4xx, a redirect, an `error` event, and a 200 or `complete` without a run.
        /// Fabric answered with an error
        /// Fabric answered with an error, or with something that is not an answer
        ApiError = "fabric-api-error";
        /// The run went silent
        /// Fabric accepted the run but sent no text within --idle-timeout: the model may have failed
        Timeout = "fabric-timeout";
        // Also: silent for too long after content, or longer than a run may take.
        /// Fabric's answer was cut short
        /// The output was cut short; the result has what had arrived
        StreamInterrupted = "fabric-stream-interrupted";
        /// The answer is too large
        /// An answer of Fabric, or the result of a call, is larger than its limit
        ResponseTooLarge = "response-too-large";
        /// No such pattern
        /// Fabric has no pattern of this name; the error suggests similar names
        PatternNotFound = "pattern-not-found";
        /// The request was refused
        /// An argument, name, variable or pattern was refused
        InvalidRequest = "invalid-request";
        /// Not allowed
        /// The caller's role or scope, or --read-only, does not allow it
        Forbidden = "forbidden";
        /// Too many requests
        /// Too many runs at once or in one minute, too little memory, or no model tokens left this month
        TooManyRequests = "too-many-requests";
        /// Cancelled
        /// The caller cancelled, or the server stopped
        Cancelled = "cancelled";
        /// Internal error
        /// A bug in fabric-mcp, or this machine lacks a thread, disk space or the folder of patterns: the error says which
        #[default]
        Internal = "internal-server-error";
    }
}

impl Kind {
    /// The kind of that [`Kind::name`].
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// A short title for people, the same for every failure of this kind.
    pub(crate) fn title(self) -> &'static str {
        self.words()[0]
    }

    /// What `--help errors` says of it.
    pub(crate) fn help(self) -> &'static str {
        self.words()[1]
    }

    /// Did Fabric fail? The URN says so.
    pub(crate) fn is_of_fabric(self) -> bool {
        self.name().starts_with("fabric-")
    }

    /// Is it about what the caller sent or did, so that the detail may quote that?
    pub(crate) fn quotes_caller(self) -> bool {
        matches!(
            self,
            Kind::PatternNotFound | Kind::InvalidRequest | Kind::Cancelled
        )
    }

    /// The whole URN.
    pub(crate) fn urn(self) -> String {
        format!("urn:fabric-mcp:error:{}", self.name())
    }
}

/// What a [`Cause`] means for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// It has failed.
    Failure,
    /// It has failed, and may succeed if it is sent again at once.
    Passing,
    /// Nothing: only `--check` tells of it, and does not fail because of it.
    Warning,
}

table! {
    /// Why Fabric could not be used, or not as it should be. Finer than [`Kind`]. Its row has the kind of the error, what
    /// it means for a request, and the code for scripts of `--check`, which never changes; an empty one stands for the
    /// name of the kind. Its comment is what people are told: what happened and why, and what to do. Names in
    /// braces are holes that are filled in; `{limit}` is in seconds, `{flag}` sets that limit, and `{later}` says when.
    #[allow(rustdoc::bare_urls, reason = "its rows' comments are shown to people as they are")]
    told Cause: (Kind, Severity, &'static str) as row {
        /// Fabric 1.4 is not installed in any of the usual places, so it cannot be started.
        /// Install it (https://github.com/danielmiessler/fabric#installation) and run `fabric --setup`, or give the right path: --start-fabric=PROGRAM.
        NoProgram = (Kind::ApiUnavailable, Failure, "fabric-not-found");
        /// The program that --start-fabric names is not Fabric 1.4, or is not there, so it cannot be started.
        /// Correct its name or path, or leave it out: --start-fabric alone looks in all the usual places.
        WrongProgram = (Kind::ApiUnavailable, Failure, "fabric-not-found");
        /// Fabric cannot be started, because it is not set up.
        /// Run `fabric --setup` on this machine and choose a default model, then try again.
        NotSetUp = (Kind::ApiUnavailable, Failure, "fabric-not-set-up");
        /// Fabric cannot be started: {why}.
        /// Try again. If that fails too, read what Fabric said: in the log of fabric-mcp, or with fabric-mcp --start-fabric --check, above the problems.
        NotStarted = (Kind::ApiUnavailable, Failure, "fabric-not-started");
        /// The Fabric that this server had started has ended.
        /// Try again: the server then starts Fabric again. The log of fabric-mcp has what Fabric said last.
        FabricEnded = (Kind::ApiUnavailable, Passing, "fabric-ended");
        /// Nothing listens at {url}.
        /// Start `fabric --serve`, or this server with --start-fabric; if Fabric runs, set FABRIC_BASE_URL to the host and port it prints.
        Refused = (Kind::ApiUnavailable, Passing, "connection-refused");
        /// The connection to Fabric at {url} failed ({why}).
        /// Check the network between this machine and Fabric, and whether `fabric --serve` is running.
        NoConnection = (Kind::ApiUnavailable, Passing, "");
        /// The host name in {url} cannot be resolved.
        /// Correct the name in FABRIC_BASE_URL, or fix this machine's DNS; `getent hosts NAME` tests it.
        UnknownHost = (Kind::ApiUnavailable, Passing, "unknown-host");
        /// {url} does not accept the connection within {limit} s: the host may be off, or a firewall may block the connection.
        /// Check the host and port in FABRIC_BASE_URL, and the firewall. If the network is slow, raise --connect-timeout.
        ConnectTimeout = (Kind::ApiUnavailable, Failure, "connect-timeout");
        /// Fabric at {url} did not answer {request} within {limit} s ({flag}).
        /// Restart `fabric --serve` if it hangs; if it is only slow, raise that limit.
        Silent = (Kind::ApiUnavailable, Failure, "no-answer");
        /// Fabric at {url} did not finish {request} within {limit} s ({flag}).
        /// If Fabric needs that long, raise that limit.
        Unfinished = (Kind::StreamInterrupted, Failure, "");
        // Our limit, and no failure of Fabric.
        /// The run at Fabric ({url}) took longer than {limit} s ({flag}), so it was ended.
        /// Ask for a shorter output, or raise that limit.
        RunTimeout = (Kind::StreamInterrupted, Failure, "");
        /// Fabric at {url} stopped reading {request} before its end.
        /// Restart `fabric --serve` if it hangs; if the network is slow, raise --request-timeout.
        Unread = (Kind::ApiUnavailable, Failure, "no-answer");
        /// Fabric at {url} was silent for {limit} s during the run: the model may have failed; Fabric's own log may say why.
        /// If the model is only slow, raise --idle-timeout.
        RunSilent = (Kind::Timeout, Failure, "");
        /// The connection to Fabric at {url} broke off in the middle of the answer to {request}.
        /// Try again if the rest is needed; if it happens again, read the log of Fabric, and of any proxy in front of it.
        BrokeOff = (Kind::StreamInterrupted, Passing, "");
        /// The proxy that ALL_PROXY, HTTPS_PROXY or HTTP_PROXY names does not connect to Fabric at {url}: {why}.
        /// Correct that variable; if Fabric needs no proxy, add its host to NO_PROXY.
        Proxy = (Kind::ApiUnavailable, Failure, "proxy-failed");
        /// The certificate at {url} has expired, or this machine's clock is fast.
        /// Check the clock with `date -u`; if it is right, renew the certificate.
        CertificateExpired = (Kind::ApiUnavailable, Failure, "certificate-expired");
        /// The certificate at {url} is not valid yet, or this machine's clock is slow.
        /// Check the clock with `date -u`, and set it.
        CertificateNotYetValid = (Kind::ApiUnavailable, Failure, "certificate-not-yet-valid");
        /// The certificate at {url} comes from an authority that is not trusted here.
        /// Set SSL_CERT_FILE to a PEM file with that authority's certificate.
        CertificateUnknownIssuer = (Kind::ApiUnavailable, Failure, "certificate-unknown-issuer");
        /// The server at {url} shows the certificate of an authority (CA:TRUE), which a server must not use as its own.
        /// Make a new one with `openssl req -x509 -addext basicConstraints=CA:FALSE -addext subjectAltName=DNS:HOST` (or IP:…).
        CertificateOfAuthority = (Kind::ApiUnavailable, Failure, "certificate-of-authority");
        /// The certificate at {url} is for another host name ({why}).
        /// Use the name of the certificate in FABRIC_BASE_URL.
        CertificateWrongName = (Kind::ApiUnavailable, Failure, "certificate-wrong-name");
        /// What listens at {url} does not speak TLS.
        /// Write http:// instead of https:// in FABRIC_BASE_URL, or correct its port.
        NotTls = (Kind::ApiUnavailable, Failure, "not-tls");
        // It answers that it speaks TLS only.
        /// What listens at {url} expects TLS (HTTP 400).
        /// Write https:// instead of http:// in FABRIC_BASE_URL, or correct its port.
        WantsTls = (Kind::ApiError, Failure, "wants-tls");
        /// The TLS connection to Fabric at {url} failed: {why}.
        /// Check the proxy or server that handles TLS for Fabric, and whether that address uses https at all.
        Tls = (Kind::ApiUnavailable, Failure, "tls-failed");
        /// Fabric at {url} closed the connection without an answer to {request}.
        /// Fabric's own log may say why; if another program listens there, correct the port in FABRIC_BASE_URL, or write https:// if it expects TLS.
        Closed = (Kind::ApiUnavailable, Passing, "not-http");
        /// What listens at {url} closed the connection without an answer to {request}.
        /// Write http:// instead of https:// in FABRIC_BASE_URL if it does not speak TLS, or correct its port; otherwise Fabric's own log may say why.
        ClosedTls = (Kind::ApiUnavailable, Passing, "not-tls");
        /// What listens at {url} does not answer in HTTP.
        /// Correct the port in FABRIC_BASE_URL, or write https:// if that port expects TLS.
        NotHttp = (Kind::ApiError, Failure, "not-http");
        /// {url} answers {request} with a web page: a proxy, a login page or another program.
        /// Set FABRIC_BASE_URL to the address of `fabric --serve` itself, with a path if a proxy serves it under one.
        WebPage = (Kind::ApiError, Failure, "web-page");
        /// The answer to {request} from {url} is compressed, although that was not asked for: a proxy may be answering there.
        /// Switch off the compression of that proxy, or set FABRIC_BASE_URL to the address of Fabric itself.
        Compressed = (Kind::ApiError, Failure, "");
        /// {url} answers {request} with a redirect (HTTP {status}), which is not followed, because the other address would get the key.
        /// Set FABRIC_BASE_URL to the address that the redirect leads to; `curl -sI URL` shows it.
        Redirect = (Kind::ApiError, Failure, "redirect");
        /// Fabric at {url} wants an API key (HTTP {status}), and FABRIC_API_KEY is not set.
        /// Set FABRIC_API_KEY to the key that `fabric --serve --api-key` was given; in a client, put it into the entry's env: clients may not see your shell.
        KeyMissing = (Kind::ApiUnauthorized, Failure, "key-missing");
        /// Fabric at {url} refuses the key in FABRIC_API_KEY (HTTP {status}).
        /// Set FABRIC_API_KEY to the key that `fabric --serve --api-key` was given; it may have changed.
        KeyRefused = (Kind::ApiUnauthorized, Failure, "key-refused");
        /// Fabric at {url} refuses the key (HTTP {status}): FABRIC_API_KEY holds a placeholder that nothing has replaced.
        /// Put the key itself there, in the client's env; or start the client from a shell where FABRIC_API_KEY is set.
        KeyPlaceholder = (Kind::ApiUnauthorized, Failure, "key-placeholder");
        /// Fabric at {url} does not know {request} (HTTP 404).
        /// Check the name, and FABRIC_BASE_URL: its port may belong to another program, and it needs a path only if a proxy serves Fabric under one.
        NotFound = (Kind::ApiError, Failure, "not-found");
        /// {url} does not accept a body as large as that of {request} (HTTP {status}): a proxy in front of Fabric may limit it.
        /// Raise the limit of that proxy (client_max_body_size in nginx), or send less.
        TooLarge = (Kind::ApiError, Failure, "");
        /// Fabric at {url} says that it gets too many requests (HTTP 429).
        /// Try again {later}.
        Busy = (Kind::ApiError, Failure, "");
        /// Fabric at {url} refused {request} (HTTP {status}).
        /// Read Fabric's own log, which says why.
        RefusedRequest = (Kind::ApiError, Failure, "");
        /// A proxy answers at {url}, but it does not reach Fabric (HTTP {status}).
        /// Try again {later}; if it fails again, start `fabric --serve` behind the proxy, and check the address that the proxy sends to.
        BadGateway = (Kind::ApiUnavailable, Passing, "bad-gateway");
        /// Fabric at {url} failed on {request} (HTTP {status}).
        /// Read Fabric's own log, which says why.
        Failed = (Kind::FabricInternal, Failure, "");
        /// {url} answers {request} with something that Fabric would not send: another program or a proxy may listen there, or this version of Fabric is too old or too new.
        /// Check FABRIC_BASE_URL before you try again; if it is Fabric, update it or fabric-mcp.
        NotFabric = (Kind::ApiError, Failure, "not-fabric");
        /// The headers of the answer to {request} from {url} are too large.
        /// Check whether FABRIC_BASE_URL is the address of Fabric itself.
        HeadTooLarge = (Kind::ResponseTooLarge, Failure, "");
        // Restarting Fabric does not help.
        /// This machine cannot open another connection to Fabric at {url}: {why}.
        /// Raise its limits on open files and threads, or lower --max-runs and --max-connections.
        NoSocket = (Kind::ApiUnavailable, Passing, "");
        // From here on mostly found by `--check`.
        /// Fabric has no patterns, so nothing can be run.
        /// Fetch them on Fabric's host with `fabric --updatepatterns`.
        NoPatterns = (Kind::PatternNotFound, Failure, "no-patterns");
        /// FABRIC_API_KEY is set, but Fabric answers without it too: anyone who can reach its address can use it.
        /// Start it with `fabric --serve --api-key KEY`, or unset FABRIC_API_KEY.
        KeyNotAskedFor = (Kind::ApiError, Warning, "key-not-asked-for");
        /// Fabric lists no models: no vendor is set up, or none of them answers.
        /// Set up a vendor on Fabric's host with `fabric --setup`, then restart `fabric --serve`.
        NoModels = (Kind::ApiError, Warning, "no-models");
        /// Fabric cannot list its models (HTTP 500).
        /// If no vendor is set up, run `fabric --setup` on Fabric's host, then restart `fabric --serve`; otherwise Fabric's own log says why.
        NoVendor = (Kind::FabricInternal, Failure, "no-vendor");
        /// Fabric has no default model.
        /// Run `fabric --setup`, then restart `fabric --serve`; or start this server with --default-model; or give model_name (see fabric_list_models).
        NoDefaultModel = (Kind::ApiError, Failure, "no-default-model");
        /// Fabric has no strategies: it cannot read their folder (HTTP 500), usually because they were never downloaded.
        /// Run `fabric --setup` on Fabric's host and choose Strategies there.
        NoStrategies = (Kind::ApiError, Warning, "no-strategies");
        /// This looks like an old Fabric. Before v1.4.367 the text of a run comes in one piece at its end; before v1.4.442 a cancelled run goes on, and you pay for it.
        /// Update Fabric on its host; fabric-mcp also works with this old one.
        OldFabric = (Kind::ApiError, Warning, "old-fabric");
        /// Fabric cannot list its strategies; runs without a strategy work. {why}
        /// {fix}
        StrategiesUnread = (Kind::ApiError, Warning, "no-strategies");
        /// fabric_get_configuration will fail. {why}
        /// {fix}
        NoConfiguration = (Kind::ApiError, Warning, "no-configuration");
        /// {why}
        /// Change the setting, or keep it if it is what you want.
        Settings = (Kind::ApiError, Warning, "settings");
        /// Callers with OAuth tokens cannot be let in: {why}.
        /// Check --oauth-issuer, and whether it can be reached from here; fabric-mcp --help oauth says what to set up there.
        OAuthIssuer = (Kind::ApiError, Failure, "oauth-issuer");
        /// The demo's run failed: {why}.
        /// This is a bug in fabric-mcp: please report it.
        DemoRun = (Kind::ApiError, Failure, "demo-run");
    }
}

impl Cause {
    /// What happened and why, with holes in braces: for results, `--check` and `--help problems` alike.
    pub(crate) fn what(self) -> &'static str {
        self.words()[0]
    }

    /// What to do, with holes in braces.
    pub(crate) fn fix(self) -> &'static str {
        self.words()[1]
    }

    /// Its code in `--check`; empty if it has that of its kind.
    pub(crate) fn code(self) -> &'static str {
        self.row().2
    }

    /// Whether `--check` fails because of it.
    pub(crate) fn is_error(self) -> bool {
        self.row().1 != Warning
    }

    /// Whether a request may succeed when it is sent again at once.
    pub(crate) fn is_passing(self) -> bool {
        self.row().1 == Passing
    }

    /// What happened and what to do, for a cause without holes.
    pub(crate) fn text(self) -> String {
        format!("{} {}", self.what(), self.fix())
    }
}

/// Words about a Fabric that somebody else has started, and those about one that this server starts.
const OF_OTHERS: [(&str, &str); 6] = [
    (", then restart `fabric --serve`", ""),
    ("; otherwise Fabric's own log says why", ""),
    (" on Fabric's host", ""),
    ("Fabric, and of any proxy in front of it", "fabric-mcp"),
    (
        "Restart `fabric --serve` if it hangs",
        "Try again: a Fabric that answers nothing is replaced",
    ),
    ("`fabric --serve`", "fabric-mcp"),
];

/// Where the arguments are that an error is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Place {
    /// In a call, as JSON.
    #[default]
    Call,
    /// In a call that is typed at a shell, as KEY=VALUE.
    Shell,
    /// In the object at this path, such as `then[0]`: always as JSON.
    Object(String),
}

impl Place {
    /// An argument as errors name it.
    pub(crate) fn path(&self, name: &str) -> String {
        match self {
            Place::Object(object) => format!("{object}.{name}"),
            _ => name.to_owned(),
        }
    }

    /// How to give an argument this value, which is JSON: `"a": 1`, or at a shell `a=1`.
    pub(crate) fn give(&self, name: &str, value: &str) -> String {
        match self {
            Place::Shell => format!("{name}={}", value.trim_matches('"')),
            _ => format!("\"{name}\": {value}"),
        }
    }

    /// The same for members of an argument: `a {"b": 1, "c": 1}`, or at a shell `a.b=1 a.c=1`.
    pub(crate) fn give_in(&self, name: &str, members: &[&str], value: &str) -> String {
        let (start, between, end) = match self {
            Place::Shell => (format!("{name}."), format!(" {name}."), ""),
            _ => (format!("{name} {{"), ", ".to_owned(), "}"),
        };
        let pairs = members.iter().map(|member| self.give(member, value));
        start + &Vec::from_iter(pairs).join(&between) + end
    }
}

/// Most faults of a call that are told at once.
pub(crate) const MOST_FAULTS: usize = 12;

/// One failure: its kind, and a sentence or two that say what happened and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Error {
    /// The kind of failure.
    pub(crate) kind: Kind,
    /// Safe to show to any caller: names what was wrong and what to do next.
    pub(crate) detail: String,
    /// How many bytes at the end of `detail` say what to do; 0 if they are not told apart from the rest.
    pub(crate) fix: usize,
    /// How long to wait before a retry, if known.
    pub(crate) retry_after: Option<Duration>,
    /// The cause, where it has a row in the table.
    pub(crate) cause: Option<Cause>,
    /// The HTTP status that Fabric or a proxy answered with; for the log.
    pub(crate) status: Option<u16>,
    /// The argument that was refused; for the log.
    pub(crate) argument: Option<Box<str>>,
    /// The pattern and the model that the operator's rules refuse, and why; for the log.
    pub(crate) policy_refusal: Option<Box<[String; 3]>>,
    /// Whether `detail` may repeat a text of the caller's or a model's, which is not for the log.
    pub(crate) is_private: bool,
    /// Output of the run that had arrived: in a chain one text for each step, otherwise at most one.
    pub(crate) partial: Vec<String>,
}

impl Error {
    /// An error of `kind`, described by `detail`.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Error {
        Error {
            kind,
            detail: detail.into(),
            ..Error::default()
        }
    }

    /// Was the call refused before any model was asked?
    pub(crate) fn is_refusal(&self) -> bool {
        use Kind::{Forbidden, InvalidRequest, PatternNotFound};
        let kinds = [Forbidden, InvalidRequest, PatternNotFound];
        kinds.contains(&self.kind) && self.partial.is_empty()
    }

    /// Has Fabric failed without saying why, so that it may lack a name in the request?
    pub(crate) fn is_vague(&self) -> bool {
        matches!(self.kind, Kind::FabricInternal | Kind::ApiError) && self.retry_after.is_none()
    }

    /// The same error, about this argument, unless it is about another already. `argument` has only the part of the
    /// name that the tool knows, because what follows may be the caller's text.
    pub(crate) fn about(mut self, argument: impl Into<Box<str>>) -> Error {
        self.argument.get_or_insert_with(|| argument.into());
        self
    }

    /// The same error, marked as coming from one of the operator's rules, which is about this pattern or model. Both
    /// are valid names.
    pub(crate) fn of_policy(mut self, pattern: &str, model: &str) -> Error {
        self.policy_refusal = Some(Box::new([pattern, model, &self.detail].map(str::to_owned)));
        self
    }

    /// An error in the words of its cause, with these values in the place of `{name}`.
    pub(crate) fn of(cause: Cause, values: &[(&str, &str)]) -> Error {
        let (mut what, mut fix) = (cause.what().to_owned(), cause.fix().to_owned());
        for (name, value) in values {
            let hole = format!("{{{name}}}");
            what = what.replace(&hole, value);
            fix = fix.replace(&hole, value);
        }
        Error {
            fix: fix.len(),
            cause: Some(cause),
            ..Error::new(cause.row().0, format!("{what} {fix}"))
        }
    }

    /// Says it of a Fabric that this server starts.
    pub(crate) fn say_of_own(&mut self) {
        let begin = self.detail.len().saturating_sub(self.fix);
        let mut fix = self.detail.get(begin..).unwrap_or_default().to_owned();
        for (other, own) in OF_OTHERS {
            self.detail = self.detail.replace(other, own);
            fix = fix.replace(other, own);
        }
        self.fix = fix.len();
    }

    /// All of these faults in one error of the kind of the first; those beyond [`MOST_FAULTS`] are left out.
    ///
    /// # Errors
    /// That error, if there are any faults.
    pub(crate) fn all(faults: impl IntoIterator<Item = Error>) -> Result<(), Error> {
        let faults = faults.into_iter().take(MOST_FAULTS);
        faults.reduce(Error::and).map_or(Ok(()), Err)
    }

    /// This error, with the detail of another one added.
    pub(crate) fn and(mut self, other: Error) -> Error {
        let said = self.detail.trim_end_matches(" Nothing was run.");
        self.detail = format!("{said} {}", other.detail);
        self.fix = 0;
        self.policy_refusal = self.policy_refusal.or(other.policy_refusal);
        self
    }

    /// What identifies the failure in the report of `--check`; stable.
    pub(crate) fn code(&self) -> &'static str {
        let code = self.cause.map(Cause::code);
        code.filter(|code| !code.is_empty())
            .unwrap_or(self.kind.name())
    }

    /// What happened, and what to do.
    pub(crate) fn parts(&self) -> (&str, &str) {
        let end = self.detail.len().saturating_sub(self.fix);
        match self.detail.split_at_checked(end) {
            Some((what, fix)) if !fix.is_empty() => (what.trim_end(), fix),
            _ => (self.detail.trim_end(), "Look at Fabric's own log."),
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

    /// A call that had not ended when the process did.
    pub(crate) fn stopped() -> Error {
        let detail =
            "The server was stopped before this call had ended. Try again once it is back.";
        Error::new(Kind::Cancelled, detail)
    }

    /// Somebody cancelled: its caller, or whoever may stop its run.
    pub(crate) fn cancelled() -> Error {
        Error::new(Kind::Cancelled, "This call was stopped before its end.")
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
        for text in [Kind::name, Kind::title, Kind::help] {
            let texts: std::collections::HashSet<_> = Kind::ALL.map(text).into();
            assert_eq!(texts.len(), Kind::ALL.len());
        }
        let found = Kind::ApiUnavailable.urn();
        assert_eq!(found, "urn:fabric-mcp:error:fabric-api-unavailable");
    }

    #[test]
    fn every_cause_says_what_happened_and_what_to_do() {
        for cause in Cause::ALL {
            let ((.., code), [what, fix]) = (cause.row(), cause.words());
            let ends = |text: &str| text.ends_with(['.', '}']) || text.ends_with("(or IP:…).");
            assert!(ends(what) && ends(fix), "{cause:?}");
            let is_so = !what.contains("  ") && !fix.contains("  ") && fix.len() <= 150;
            assert!(is_so, "{cause:?}");
            let is_so = code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            assert!(is_so, "{cause:?}");
        }
    }

    #[test]
    fn an_error_in_the_words_of_its_cause_has_two_parts() {
        let all = [("url", "http://f:1"), ("why", "unused")];
        let error = Error::of(Cause::Refused, &all);
        assert_eq!(error.code(), "connection-refused");
        let (what, fix) = error.parts();
        assert_eq!(what, "Nothing listens at http://f:1.");
        assert!(fix.starts_with("Start `fabric --serve`"), "{error}");
        assert_eq!(error.detail, format!("{what} {fix}"));
        let mut own = Error::of(Cause::NoVendor, &[]);
        own.say_of_own();
        let fix = "If no vendor is set up, run `fabric --setup`.";
        assert_eq!(own.parts(), (Cause::NoVendor.what(), fix));
        let failed = Error::of(Cause::Failed, &[]);
        assert_eq!(failed.code(), "fabric-internal-error");
        let other = Error::new(Kind::FabricInternal, "It failed.");
        assert_eq!(other.code(), "fabric-internal-error");
        let parts = ("It failed.", "Look at Fabric's own log.");
        assert_eq!(other.parts(), parts);
    }
}
