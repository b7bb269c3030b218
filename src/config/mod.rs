//! The settings of one run of the program, validated.
//!
//! In scope: every setting, and the limits that several modules share or the README lists. Not in scope: how flags are
//! written (`cli`), what the settings do, and limits with one user, which are in its file.

mod url;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use url::base_url;

use crate::net::Authority;

// Sizes and counts.

/// Largest message accepted, a line on stdio or a body over HTTP, in bytes.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;
/// Largest JSON body accepted from Fabric, in bytes.
pub(crate) const MAX_FABRIC_BODY: usize = 16 << 20;
/// Largest output of one run, in bytes of text.
pub(crate) const MAX_RUN_OUTPUT: usize = 32 << 20;
/// Longest string argument without a limit of its own, in bytes; `input_text` is limited by [`MAX_MESSAGE`] alone.
pub(crate) const MAX_STRING: usize = 4 << 10;
/// Longest name (pattern, strategy, context, session, model, vendor, variable), in characters.
pub(crate) const MAX_NAME: usize = 128;
/// Most variables of one run.
pub(crate) const MAX_VARIABLES: usize = 256;
/// Longest value of one variable, in bytes.
pub(crate) const MAX_VARIABLE_VALUE: usize = 64 << 10;
/// Most attachments of one run.
pub(crate) const MAX_ATTACHMENTS: usize = 64;
/// Most patterns in a run's `then`.
pub(crate) const MAX_CHAIN_STEPS: usize = 8;
/// Longest text of a failed run that its result keeps, in bytes.
pub(crate) const MAX_PARTIAL_TEXT: usize = 64 << 10;
/// Most messages in one JSON-RPC batch.
pub(crate) const MAX_BATCH: usize = 1000;
/// Largest `limit` of `fabric_list_patterns`.
pub(crate) const MAX_ROWS: usize = 10_000;

// Concurrency.

/// Bytes that all requests, calls, outputs and answers may hold together unless `--max-memory` says otherwise.
pub(crate) const DEFAULT_MEMORY: usize = 256 << 20;
/// Longest id of a request and longest progress token, in bytes of JSON without its quotes: both are repeated.
pub(crate) const MAX_ID: usize = 1 << 10;
/// Most values in the params of one request. The largest call there is has some 2,500.
pub(crate) const MAX_VALUES: usize = 10_000;
/// Most bytes of the answers to one batch together.
pub(crate) const MAX_BATCH_ANSWERS: usize = 32 << 20;

/// Runs at once on http and sse unless `--max-runs` says otherwise.
pub(crate) const HTTP_MAX_RUNS: usize = 512;
/// Stack of a thread that runs a call, in bytes: enough for JSON as deep as serde_json reads it, in a debug build.
pub(crate) const WORKER_STACK: usize = 512 << 10;
/// Calls that may wait for a free worker on stdio; beyond it they are refused as `too-many-requests`.
pub(crate) const MAX_QUEUED_RUNS: usize = 64;

/// Most legacy HTTP sessions kept; beyond it the longest idle one is dropped.
pub(crate) const MAX_SESSIONS: usize = 10_000;

/// Longest key or token, in bytes.
pub(crate) const MAX_SECRET: usize = 4 << 10;
/// Longest `--path` and base URL, in bytes.
pub(crate) const MAX_ADDRESS: usize = 2 << 10;

// Times.

/// How often a call that sends much checks whether its client is still there; a silent one does every 100 ms.
pub(crate) const GONE_CHECK: Duration = Duration::from_millis(50);
/// How long calls that were cancelled at the end of a drain may take to send their answers.
pub(crate) const ABORT_GRACE: Duration = Duration::from_millis(500);
/// Silence on an event stream after which a comment is sent, so that proxies keep it open.
pub(crate) const SSE_COMMENT: Duration = Duration::from_secs(15);
/// How long clients of 2026-07-28 may cache what only changes with the program: tools, templates, `server/discover`.
pub(crate) const STATIC_TTL: Duration = Duration::from_secs(3600);
/// How long a connection is read after an early answer, so that the client sees the answer and not a reset.
pub(crate) const HTTP_LINGER_TIME: Duration = Duration::from_secs(2);

/// How clients reach this server: `--transport`, default stdio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    /// One client, over stdin and stdout.
    #[default]
    Stdio,
    /// Streamable HTTP, every revision from 2025-03-26 on.
    Http,
    /// The HTTP+SSE transport of 2024-11-05.
    Sse,
}

impl Transport {
    /// The name on the command line and in logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Stdio => "stdio",
            Transport::Http => "http",
            Transport::Sse => "sse",
        }
    }
}

/// The least severe records that are logged: `--log-level`, default info.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Everything of ours; never records of libraries.
    Debug,
    /// One line per call, and what happens to the server.
    #[default]
    Info,
    /// What may need attention.
    Warning,
    /// What failed.
    Error,
    /// Only what ends the process.
    Critical,
}

/// How a line of the log is written: `--log-format`, default logfmt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Time, level, target, and a message of `key=value`.
    #[default]
    Logfmt,
    /// One JSON object.
    Json,
}

/// The settings of one run of the server. `Default` is empty: the defaults are in the table of flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// `--transport`; default stdio.
    pub(crate) transport: Transport,
    /// Address or name to listen on, without brackets: `--host`; default 127.0.0.1.
    pub(crate) host: String,
    /// `--port`; default 8000; 0 lets the system choose.
    pub(crate) port: u16,
    /// Path of the MCP endpoint, with its leading slash: `--path`; default `/mcp`, on sse `/sse`.
    pub(crate) path: String,
    /// How to reach Fabric.
    pub(crate) fabric: Fabric,
    /// `--log-level`; default info.
    pub(crate) log_level: LogLevel,
    /// `--log-format`; default logfmt.
    pub(crate) log_format: LogFormat,
    /// Which patterns and models may be run.
    pub(crate) policy: Policy,
    /// How long the list of patterns and strategies is good: `--catalog-ttl`; default 300 s.
    pub(crate) catalog_ttl: Duration,
    /// Runs at once: `--max-runs`; default 16 on stdio, else [`HTTP_MAX_RUNS`].
    pub(crate) max_runs: usize,
    /// Bytes that requests, calls, outputs and answers may hold together: `--max-memory`; default 256 MiB.
    pub(crate) max_memory: usize,
    /// How long calls wait for runs, and how long runs are kept.
    pub(crate) kept: RunSettings,
    /// What only the HTTP transports need; `drain_timeout` counts on stdio too.
    pub(crate) http: Http,
    /// Use the built-in Fabric instead of `fabric.url`: `--demo`.
    pub(crate) demo: bool,
    /// Warnings about the settings, one line each, logged at the start.
    pub(crate) warnings: Vec<String>,
}

/// Which patterns and models the operator allows; `tools` applies it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    /// Patterns that are refused by default and may be run all the same: `--allow-pattern`.
    pub(crate) allowed: Vec<String>,
    /// Patterns that may not be run: `--deny-pattern`. Denying wins over allowing.
    pub(crate) denied: Vec<String>,
    /// Models that may be run, all if there are none: `--allow-model`.
    pub(crate) allowed_models: Vec<String>,
    /// The model of runs that name none; empty for Fabric's own default: `--default-model`. One of `allowed_models`, if
    /// there are any.
    pub(crate) default_model: String,
    /// Its vendor, or empty: `--default-vendor`.
    pub(crate) default_vendor: String,
}

/// How long calls wait for runs, and how long runs are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSettings {
    /// A call whose run takes longer is answered with the run's id: `--answer-within`; default 50 s. 0: calls wait for the
    /// end.
    pub(crate) answer_within: Duration,
    /// The same for callers that know tasks: `--task-after`; default 5 s.
    pub(crate) task_after: Duration,
    /// How long runs are kept after their end: `--keep-runs`; default 3600 s. 0: not at all.
    pub(crate) keep: Duration,
    /// Where they are kept too: `--state-dir`.
    pub(crate) state_dir: Option<PathBuf>,
}

/// Who may call over HTTP, and how much at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http {
    /// Further values of `Host` that are allowed, without a port with any. Loopback names and the bound address always
    /// are. `--allowed-host`.
    pub(crate) allowed_hosts: Vec<Authority>,
    /// Further values of `Origin` that are allowed: `scheme://host[:port]` in lower case, without the scheme's own
    /// port, as browsers send it. `--allowed-origin`.
    pub(crate) allowed_origins: Vec<String>,
    /// The bearer token callers must show: `FABRIC_MCP_AUTH_TOKEN` or `FABRIC_MCP_AUTH_TOKEN_FILE`. Visible ASCII.
    pub(crate) token: Option<Secret>,
    /// Named tokens: `FABRIC_MCP_TOKENS_FILE` or `--tokens-file`.
    pub(crate) tokens_file: Option<PathBuf>,
    /// Where OAuth tokens come from.
    pub(crate) oauth: Option<OAuthFlags>,
    /// Proxies whose `X-Forwarded-For` is believed: `--trusted-proxy`.
    pub(crate) trusted_proxies: Vec<IpAddr>,
    /// `--allow-unauthenticated`: listen beyond loopback without a token. Without it that is a start-up error.
    pub(crate) allow_unauthenticated: bool,
    /// Runs per minute and caller; 0, the default, means no limit. `--max-calls-per-minute`.
    pub(crate) max_calls_per_minute: u32,
    /// Runs at once per caller; 0, the default, means no limit. `--max-runs-per-caller`.
    pub(crate) max_runs_per_caller: usize,
    /// How long runs may go on after SIGTERM or SIGINT: `--drain-timeout`; default 10 s.
    pub(crate) drain_timeout: Duration,
    /// Connections at once: `--max-connections`; default 512.
    pub(crate) max_connections: usize,
}

impl Http {
    /// May anybody come in?
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none() && self.tokens_file.is_none() && self.oauth.is_none()
    }
}

/// How this server is known to an OAuth authorization server.
#[derive(Clone, Debug)]
pub(crate) struct OAuthFlags {
    /// `--oauth-issuer`, an URL.
    pub(crate) issuer: String,
    /// `--oauth-resource`, an URL.
    pub(crate) resource: String,
    /// `FABRIC_MCP_OAUTH_CLIENT_ID`.
    pub(crate) client_id: Secret,
    /// `FABRIC_MCP_OAUTH_CLIENT_SECRET`.
    pub(crate) client_secret: Secret,
}

/// How often it is logged that connections cannot be accepted, or have to make room, while that goes on.
pub(crate) const HTTP_ACCEPT_LOG: Duration = Duration::from_secs(10);

/// A value that must never be shown: `Debug` prints a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub(crate) fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The secret itself, to be sent or compared.
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
    /// `http://` or `https://`, host, port and path prefix, without a slash at the end and without user-info.
    /// `FABRIC_BASE_URL`, `--fabric-url`; default `http://127.0.0.1:8080`. User-info in the given URL is a start-up error.
    pub(crate) url: String,
    /// `FABRIC_API_KEY`, from the environment only; sent as `X-API-Key`.
    pub(crate) api_key: Option<Secret>,
    /// PEM file with the certificates to trust instead of the built-in roots: `SSL_CERT_FILE`.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "read for TLS only"))]
    pub(crate) ca_file: Option<PathBuf>,
    /// Longest time to connect; default 5 s. `--connect-timeout`.
    pub(crate) connect_timeout: Duration,
    /// Longest silence of Fabric during a run, the wait for its headers included; default 300 s. `--idle-timeout`.
    pub(crate) idle_timeout: Duration,
    /// Longest run; default 3600 s. `--run-timeout`.
    pub(crate) run_timeout: Duration,
    /// Longest time in total for any other request; default 30 s. `--request-timeout`.
    pub(crate) request_timeout: Duration,
    /// The same for the list of models, which may ask every vendor, and for a transcript; default 120 s. `--models-timeout`.
    pub(crate) models_timeout: Duration,
}

/// The limits of one HTTP server.
#[derive(Clone, Debug)]
pub(crate) struct HttpLimits {
    /// Connections at once, each with a thread; default 512. At the limit one without a request that was let in is closed;
    /// a few places are left for those even if all others are held.
    pub(crate) max_connections: usize,
    /// Request line and headers, in bytes; default 16 KiB.
    pub(crate) max_head: usize,
    /// Headers in one request; default 100.
    pub(crate) max_headers: usize,
    /// From the first byte of a request to the end of its head; default 10 s.
    pub(crate) head_timeout: Duration,
    /// One body, in bytes; default [`MAX_MESSAGE`].
    pub(crate) max_body: usize,
    /// From the start of reading a body to its last byte; default 30 s.
    pub(crate) body_timeout: Duration,
    /// Between two requests on a connection; default 75 s.
    pub(crate) idle_timeout: Duration,
    /// Longest write without progress; default 30 s.
    pub(crate) write_timeout: Duration,
    /// Stack of a connection's thread, in bytes of address space; only what is touched costs memory. Default 256 KiB,
    /// or 1 MiB without optimisation, where frames are several times as large.
    pub(crate) stack_size: usize,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            max_connections: 512,
            max_head: 16 << 10,
            max_headers: 100,
            head_timeout: Duration::from_secs(10),
            max_body: MAX_MESSAGE,
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            stack_size: if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 },
        }
    }
}
