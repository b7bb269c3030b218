//! The settings of one run of the program, validated.
//!
//! In scope: every setting, and limits that several modules share or the README lists. Not in scope: how flags are
//! written (`cli`), what the settings do, and limits that only one file uses, which are there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use log::Level;

use crate::url::{Authority, WebUrl};

/// Returns a variable's value, as `std::env::var_os` does.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Variable of Fabric's address.
pub(crate) const BASE_URL: &str = "FABRIC_BASE_URL";
/// Variable of the key for Fabric's API.
pub(crate) const API_KEY: &str = "FABRIC_API_KEY";
/// What Fabric's variables for the models of single patterns begin with; the name follows in upper case, with `_` for
/// each `-`.
pub(crate) const MODEL_VARIABLE: &str = "FABRIC_MODEL_";
/// The beginning of the names of most variables, those called after flags.
pub(crate) const OWN_VARIABLE: &str = "FABRIC_MCP_";
/// Variable of the file of certificates to trust.
pub(crate) const CERT_FILE: &str = "SSL_CERT_FILE";
/// Variable of the token that callers over HTTP must send, and that `--connect` sends.
pub(crate) const AUTH_TOKEN: &str = "FABRIC_MCP_AUTH_TOKEN";
/// The prefix of tokens that are generated here. None of them is ever sent to an OAuth issuer.
pub(crate) const TOKEN_PREFIX: &str = "fmcp_";

// Sizes and counts.

/// Largest message accepted, a line on stdio or a body over HTTP, in bytes.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;
/// Largest JSON body accepted from Fabric, in bytes.
pub(crate) const MAX_FABRIC_BODY: usize = 16 << 20;
/// Largest output of one run, in bytes of text.
pub(crate) const MAX_RUN_OUTPUT: usize = 32 << 20;
/// Longest string argument without its own limit, in bytes; `input_text` is limited only by [`MAX_MESSAGE`].
pub(crate) const MAX_STRING: usize = 4 << 10;
/// Longest name (pattern, strategy, context, session, model, vendor, variable), in characters.
pub(crate) const MAX_NAME: usize = 128;
/// Most variables of one run.
pub(crate) const MAX_VARIABLES: usize = 256;
/// Longest value of a variable, in bytes.
pub(crate) const MAX_VARIABLE_VALUE: usize = 64 << 10;
/// Most patterns in a run's `then`.
pub(crate) const MAX_CHAIN_STEPS: usize = 8;
/// Longest partial text in the result of a failed run, in bytes.
pub(crate) const MAX_PARTIAL_TEXT: usize = 64 << 10;
/// Characters of a pattern's prompt that are shown, unless more are asked for.
pub(crate) const SHOWN_PROMPT: usize = 8000;
/// Most bytes of pattern texts that are kept together. Of patterns beyond that, only the name is kept.
pub(crate) const MAX_PATTERN_TEXTS: usize = 32 << 20;
/// Largest file in a folder of `--patterns-dir`, in bytes.
pub(crate) const MAX_PATTERN_FILE: usize = 1 << 20;
/// Most entries of one such folder that are looked at.
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Most messages in one JSON-RPC batch.
pub(crate) const MAX_BATCH: usize = 1000;
/// Largest `limit` of `fabric_list_patterns`.
pub(crate) const MAX_ROWS: usize = 10_000;

// Memory, messages and concurrency.

/// Default of `--max-memory`: bytes that all requests, calls, outputs and answers may hold together.
pub(crate) const DEFAULT_MEMORY: usize = 256 << 20;
/// Longest request id and progress token, in bytes of JSON without quotes: answers repeat both.
pub(crate) const MAX_ID: usize = 1 << 10;
/// Most values in one message. The largest valid call has about 2,500.
pub(crate) const MAX_VALUES: usize = 10_000;
/// Most values in one line or body, which may hold a batch.
pub(crate) const MAX_LINE_VALUES: usize = 50_000;

/// Default of `--max-runs` on http and sse.
pub(crate) const HTTP_MAX_RUNS: usize = 512;
/// Stack of a thread that runs a call, in bytes: enough for the deepest JSON that serde_json reads, in a debug build.
pub(crate) const WORKER_STACK: usize = 512 << 10;
/// Calls that may wait for a free worker on stdio; further ones fail with `too-many-requests`.
pub(crate) const MAX_QUEUED_RUNS: usize = 64;

/// Most legacy HTTP sessions; at the limit those that are not in use are dropped.
pub(crate) const MAX_SESSIONS: usize = 10_000;

/// Longest key or token, in bytes.
pub(crate) const MAX_SECRET: usize = 4 << 10;

// Times.

/// How long calls that were cancelled at the end of a drain may take to answer.
pub(crate) const ABORT_GRACE: Duration = Duration::from_millis(500);
/// Silence on an event stream before a comment is sent, so that proxies keep it open.
pub(crate) const SSE_COMMENT: Duration = Duration::from_secs(15);
/// How long clients of 2026-07-28 may cache what only a new program version changes: tools, templates,
/// `server/discover`.
pub(crate) const STATIC_TTL: Duration = Duration::from_secs(3600);
/// Lingering read after an early answer, so that the client sees the answer and not a reset.
pub(crate) const HTTP_LINGER_TIME: Duration = Duration::from_secs(2);

/// How clients reach this server: `--transport`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A single client, over stdin and stdout.
    #[default]
    Stdio,
    /// Streamable HTTP, every revision from 2025-03-26 on.
    Http,
    /// The HTTP+SSE transport of 2024-11-05.
    Sse,
}

/// The settings of one run of the server. `Default` is empty: default values are in the table of flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// `--transport`.
    pub(crate) transport: Transport,
    /// Address or name to listen on, without brackets: `--host`.
    pub(crate) host: String,
    /// `--port`; 0 lets the system choose.
    pub(crate) port: u16,
    /// Path of the MCP endpoint, with its leading slash: `--path`; on sse by default `/sse`.
    pub(crate) path: String,
    pub(crate) fabric: Fabric,
    /// The lowest level that is logged: `--log-level`; `None` logs only what ends the process.
    pub(crate) log_level: Option<Level>,
    /// Whether lines of the log are JSON: `--log-format`.
    pub(crate) log_json: bool,
    pub(crate) policy: Policy,
    /// Time-to-live of the lists of patterns and strategies: `--catalog-ttl`.
    pub(crate) catalog_ttl: Duration,
    /// Concurrent runs: `--max-runs`; over HTTP by default [`HTTP_MAX_RUNS`].
    pub(crate) max_runs: usize,
    /// Bytes that requests, calls, outputs and answers may hold together: `--max-memory`.
    pub(crate) max_memory: usize,
    pub(crate) runs: RunSettings,
    /// Settings of the HTTP transports; `drain_timeout` applies to stdio too.
    pub(crate) http: Http,
    /// Start this program, a path or a name, instead of using `fabric.url`: `--start-fabric`; empty for the usual names.
    pub(crate) start_fabric: Option<PathBuf>,
    /// Use the built-in Fabric instead of `fabric.url`: `--demo`.
    pub(crate) demo: bool,
    /// Read patterns from these folders instead of any Fabric: `--patterns-dir`.
    pub(crate) patterns_dirs: Vec<PathBuf>,
    /// Print JSON, where a person gets a text: `--json`.
    pub(crate) json: bool,
    /// Warnings about the settings, one line each, logged at start-up.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Whether this needs a Fabric that somebody else has started.
    pub(crate) fn needs_fabric(&self) -> bool {
        !self.demo && self.patterns_dirs.is_empty() && self.start_fabric.is_none()
    }
}

/// The settings of `--connect`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connect {
    /// The server's endpoint: https, or http on this machine. Without user-info and final slash.
    pub(crate) url: String,
    /// The token to show there: `FABRIC_MCP_AUTH_TOKEN` or `--auth-token-file`. Visible ASCII.
    pub(crate) token: Option<Secret>,
}

/// What the operator offers and allows, and the defaults for what a run does not say; enforced by `tools` and `server`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    /// Patterns that may be run although they are refused by default: `--allow-pattern`.
    pub(crate) allowed: Vec<String>,
    /// Patterns that may not be run: `--deny-pattern`. Takes precedence over `allowed`.
    pub(crate) denied: Vec<String>,
    /// Models that may be run, as [`is_among`] has them; if empty, all: `--allow-model`.
    pub(crate) allowed_models: Vec<String>,
    /// Models that the caller may run, as its line of the tokens file has them; if empty, all.
    pub(crate) callers_models: Vec<String>,
    /// The model of runs that name none: `--default-model`; empty for Fabric's default. One of `allowed_models`, unless
    /// that is empty.
    pub(crate) default_model: String,
    /// The vendor of `default_model`, or empty: `--default-vendor`.
    pub(crate) default_vendor: String,
    /// Models of single patterns, which win over `default_model`; a later one wins over an earlier one:
    /// [`MODEL_VARIABLE`], then `--pattern-model`. All are among `allowed_models`, unless that is empty.
    pub(crate) pattern_models: Vec<PatternModel>,
    /// The language of outputs of runs that name none: `--default-language`; empty for Fabric's default.
    pub(crate) default_language: String,
    /// Leave out a block of thinking that opens an output, unless the run says otherwise: `--strip-thinking`.
    pub(crate) strip_thinking: bool,
    /// Leave out `structuredContent` and output schemas: `--plain-results`.
    pub(crate) plain_results: bool,
    /// Offer nothing that costs money: `--read-only`.
    pub(crate) read_only: bool,
    /// The tools that are offered; if empty, all: `--tool`.
    pub(crate) tools: Vec<String>,
    /// Offer no prompts: `--prompt none`.
    pub(crate) no_prompts: bool,
    /// Offer only what patterns from folders need: `--patterns-dir`.
    pub(crate) patterns_only: bool,
    /// The folders of `--patterns-dir` have no strategies.
    pub(crate) no_strategies: bool,
}

/// Whether a list of models may have this: a name, or the beginning of names with a `*` after it.
pub(crate) fn is_model(name: &str) -> bool {
    let start = name.strip_suffix('*').unwrap_or(name);
    !name.is_empty() && !start.contains(['*', '"', '\''])
}

/// Whether a list of models has this one; an empty list has all.
pub(crate) fn is_among(models: &[String], model: &str) -> bool {
    let model = model.to_lowercase();
    let is_it = |own: &String| match own.to_lowercase().strip_suffix('*') {
        // "mistral*" is not "mistral/model", which Fabric takes for any model of that vendor.
        Some(beginning) => {
            let rest = model.strip_prefix(beginning);
            let has_vendor = beginning.is_empty() || beginning.contains('/');
            rest.is_some_and(|rest| has_vendor || !rest.contains('/'))
        }
        None => own.to_lowercase() == model,
    };
    models.is_empty() || models.iter().any(is_it)
}

/// The model of one pattern.
#[derive(Clone, Debug)]
pub(crate) struct PatternModel {
    /// The name of the pattern, or of the variable of patterns.
    pub(crate) pattern: String,
    pub(crate) model: String,
    /// Its vendor, or empty.
    pub(crate) vendor: String,
}

/// How long calls wait for runs, and the runs' retention.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSettings {
    /// A call whose run takes longer is answered with the run's id: `--answer-within`. With 0, calls wait
    /// for the end.
    pub(crate) answer_within: Duration,
    /// The same as `answer_within` for callers that support tasks: `--task-after`.
    pub(crate) task_after: Duration,
    /// Retention of runs after their end: `--keep-runs`. With 0 they are not kept.
    pub(crate) keep: Duration,
    /// Folder that runs are also stored in: `--state-dir`.
    pub(crate) state_dir: Option<PathBuf>,
    /// Whether runs are kept in memory if that folder cannot be used: `--history`.
    pub(crate) is_history: bool,
    /// If runs are kept in memory only because of that: why. For a call that finds none: where they are.
    pub(crate) memory_only: Option<String>,
}

/// The model of runs that name none, in the log, the ledger and the prices.
pub(crate) const DEFAULT_MODEL: &str = "default";

/// What a million tokens cost that are read, and that are written, by model in lower case.
pub(crate) type Prices = BTreeMap<String, [f64; 2]>;

/// Access over HTTP, and limits per caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http {
    /// Additional values of `Host`; one without a port allows any port. Loopback names and the bound address are always
    /// allowed. `--allowed-host`.
    pub(crate) allowed_hosts: Vec<Authority>,
    /// Additional values of `Origin`: `scheme://host[:port]` in lower case, without the scheme's default port, as
    /// browsers send it. `--allowed-origin`.
    pub(crate) allowed_origins: Vec<String>,
    /// The bearer token that callers must send: `FABRIC_MCP_AUTH_TOKEN` or `FABRIC_MCP_AUTH_TOKEN_FILE`. Visible ASCII.
    pub(crate) token: Option<Secret>,
    /// File of named tokens: `FABRIC_MCP_TOKENS_FILE` or `--tokens-file`.
    pub(crate) tokens_file: Option<PathBuf>,
    pub(crate) oauth: Option<OAuthSettings>,
    /// Proxies whose `X-Forwarded-For` is trusted: `--trusted-proxy`.
    pub(crate) trusted_proxies: Vec<IpAddr>,
    /// `--allow-unauthenticated`: listen beyond loopback without a token; otherwise a start-up error.
    pub(crate) allow_unauthenticated: bool,
    /// Browsers get no page: `--no-page`.
    pub(crate) no_page: bool,
    /// Runs per minute and caller; 0 means no limit. `--max-calls-per-minute`.
    pub(crate) max_calls_per_minute: u32,
    /// Concurrent runs per caller; 0 means no limit. `--max-runs-per-caller`.
    pub(crate) max_runs_per_caller: usize,
    /// How long runs may continue after SIGTERM or SIGINT: `--drain-timeout`.
    pub(crate) drain_timeout: Duration,
    /// Connections at once: `--max-connections`.
    pub(crate) max_connections: usize,
}

impl Http {
    /// Whether no authentication is required.
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none() && self.tokens_file.is_none() && self.oauth.is_none()
    }
}

/// How this server is known to its authorization server.
#[derive(Clone, Debug)]
pub(crate) struct OAuthSettings {
    /// `--oauth-issuer`.
    pub(crate) issuer: WebUrl,
    /// `--oauth-resource`: this server's MCP endpoint as clients name it; the audience.
    pub(crate) resource: WebUrl,
    /// `FABRIC_MCP_OAUTH_CLIENT_ID`.
    pub(crate) client_id: Secret,
    /// `FABRIC_MCP_OAUTH_CLIENT_SECRET`.
    pub(crate) client_secret: Secret,
}

/// Interval of the log line about connections that cannot be accepted or are evicted.
pub(crate) const HTTP_ACCEPT_LOG: Duration = Duration::from_secs(10);

/// A value that must never be shown: `Debug` prints a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The secret itself, for sending and comparing.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How to reach Fabric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fabric {
    /// `http://` or `https://`, host, port and path prefix, without trailing slash and user-info. `FABRIC_BASE_URL`,
    /// `--fabric-url`. User-info in the given URL is a start-up error.
    pub(crate) url: String,
    /// `FABRIC_API_KEY`, from the environment only; sent as `X-API-Key`.
    pub(crate) api_key: Option<Secret>,
    /// Connect timeout: `--connect-timeout`.
    pub(crate) connect_timeout: Duration,
    /// Longest silence of Fabric during a run, including the wait for its headers: `--idle-timeout`.
    pub(crate) idle_timeout: Duration,
    /// Longest run: `--run-timeout`.
    pub(crate) run_timeout: Duration,
    /// Total timeout of any other request: `--request-timeout`.
    pub(crate) request_timeout: Duration,
    /// Total timeout of the list of models, for which Fabric may ask every vendor, and for a transcript:
    /// `--models-timeout`.
    pub(crate) models_timeout: Duration,
}

/// Largest request line and headers over HTTP, in bytes.
pub(crate) const MAX_HEAD: usize = 16 << 10;
/// Most headers in one request.
pub(crate) const MAX_HEADERS: usize = 100;

/// The limits of one HTTP server.
pub(crate) struct HttpLimits {
    /// Connections at once, each with a thread; default 512. At the limit, one without an admitted request is evicted;
    /// a few places stay reserved for such connections even if all others are held.
    pub(crate) max_connections: usize,
    /// From the first byte of a request to the end of its head; default 10 s.
    pub(crate) head_timeout: Duration,
    /// From the start of reading a body to its last byte; default 30 s.
    pub(crate) body_timeout: Duration,
    /// Idle time between two requests on a connection; default 75 s.
    pub(crate) idle_timeout: Duration,
    /// Longest write without progress; default 30 s.
    pub(crate) write_timeout: Duration,
    /// Stack of a connection's thread, which calls run on, in bytes of address space; only touched pages cost memory.
    /// Default [`WORKER_STACK`], or 1 MiB without optimisation, where frames are several times as large.
    pub(crate) stack_size: usize,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            max_connections: 512,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            stack_size: match cfg!(debug_assertions) {
                true => 1 << 20,
                false => WORKER_STACK,
            },
        }
    }
}
