//! What one run of the program has been told: flags over environment over defaults, validated once.
//!
//! In scope: every setting and every bound, each with its unit and default, and the types that hold them. Not in
//! scope: how flags are written (`cli`) and what the settings do (everyone else).

mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use url::base_url;

// What comes in and goes out.

/// Largest message taken in, a line on stdio or a body over HTTP, in bytes.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;
/// Largest JSON body taken from Fabric, in bytes.
pub(crate) const MAX_FABRIC_BODY: usize = 16 << 20;
/// Largest output of one run, in bytes of text.
pub(crate) const MAX_RUN_OUTPUT: usize = 32 << 20;
/// Largest single event of a run, in bytes as sent: twice the output, because JSON escapes what it carries.
pub(crate) const MAX_EVENT: usize = 2 * MAX_RUN_OUTPUT;
/// Longest string argument, in bytes, where no other bound is named; `input_text` is bounded by [`MAX_MESSAGE`] alone.
pub(crate) const MAX_STRING: usize = 4 << 10;
/// Longest name (pattern, strategy, context, session, model, vendor, variable), in characters.
pub(crate) const MAX_NAME: usize = 128;
/// Most variables of one run.
pub(crate) const MAX_VARIABLES: usize = 256;
/// Longest value of one variable, in bytes.
pub(crate) const MAX_VARIABLE_VALUE: usize = 64 << 10;
/// Most attachments of one run.
pub(crate) const MAX_ATTACHMENTS: usize = 64;
/// Most steps that may follow the first one in a chain of patterns.
pub(crate) const MAX_CHAIN_STEPS: usize = 8;
/// Most of a failed run's text that its result still carries, in bytes.
pub(crate) const MAX_PARTIAL_TEXT: usize = 64 << 10;
/// Longest vendor's message that is relayed from an `error` event, in characters.
pub(crate) const MAX_RELAYED_ERROR: usize = 500;
/// Longest one-line description of a pattern, in characters.
pub(crate) const MAX_SUMMARY: usize = 300;
/// Most values of one completion; MCP's own limit.
pub(crate) const MAX_COMPLETIONS: usize = 100;
/// Entries on one page of a list: many clients read the first page only.
pub(crate) const PAGE_SIZE: usize = 1000;
/// Most messages in one JSON-RPC batch.
pub(crate) const MAX_BATCH: usize = 1000;
/// Largest `limit` of `fabric_list_patterns`.
pub(crate) const MAX_ROWS: usize = 10_000;

// Work at the same time.

/// Bytes that all requests, calls, outputs and answers may hold together unless `--max-memory` says otherwise.
pub(crate) const DEFAULT_MEMORY: usize = 256 << 20;
/// Least and most that `--max-memory` may allow, in MiB.
pub(crate) const MEMORY_RANGE: (u64, usize) = (32, 65_536);
/// Longest id of a request and longest progress token, in bytes of JSON without its quotes: both are repeated.
pub(crate) const MAX_ID: usize = 1 << 10;
/// Most values in the params of one request. The largest call there is has some 2,500.
pub(crate) const MAX_VALUES: usize = 10_000;
/// Most bytes of the answers to one batch together.
pub(crate) const MAX_BATCH_ANSWERS: usize = 32 << 20;

/// Runs at once on stdio unless `--max-runs` says otherwise.
pub(crate) const STDIO_MAX_RUNS: usize = 16;
/// Runs at once on http and sse unless `--max-runs` says otherwise.
pub(crate) const HTTP_MAX_RUNS: usize = 512;
/// Most calls of one batch over HTTP that run at once, each on a thread.
pub(crate) const BATCH_THREADS: usize = 16;
/// Stack of a thread that runs a call, in bytes: room for JSON nested as deeply as serde_json reads it, in a debug build.
pub(crate) const WORKER_STACK: usize = 512 << 10;
/// Most `--max-runs` may allow: each run has a thread.
pub(crate) const MAX_MAX_RUNS: usize = 4096;
/// Calls that may wait for a free worker on stdio; one more is refused as `too-many-requests`.
pub(crate) const MAX_QUEUED_RUNS: usize = 64;
/// Connections at once unless `--max-connections` says otherwise.
pub(crate) const DEFAULT_MAX_CONNECTIONS: usize = 512;
/// Most `--max-connections` may allow: each connection has a thread.
pub(crate) const MAX_MAX_CONNECTIONS: usize = 65_536;
/// Most `--max-calls-per-minute` may allow; 0, the default, means no limit.
pub(crate) const MAX_CALLS_PER_MINUTE: u32 = 1_000_000;
/// Subscriptions (`subscriptions/listen`) at once on one pipe.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 64;
/// Requests to Fabric at once while the catalogue is refreshed.
pub(crate) const CATALOG_REQUESTS: usize = 8;

// Sessions of the legacy HTTP transports.

/// Most sessions kept; the longest idle one goes first.
pub(crate) const MAX_SESSIONS: usize = 10_000;
/// How long an unused session is kept.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(3600);
/// How long an ended session's id is remembered, so that it is refused and not adopted again.
pub(crate) const ENDED_SESSION_MEMORY: Duration = Duration::from_secs(3600);
/// Most ended ids remembered; beyond it the oldest is forgotten early.
pub(crate) const MAX_ENDED_SESSIONS: usize = 100_000;

/// Notifications of changed lists that may wait for one stream; further ones are dropped, for they say the same.
pub(crate) const MAX_WAITING_CHANGES: usize = 16;
/// Callers whose rate is remembered under `--max-calls-per-minute`; beyond it the longest quiet one is forgotten.
pub(crate) const MAX_RATED_CALLERS: usize = 10_000;

// Times.

/// How often a stream on which nothing happens looks whether its client is still there.
pub(crate) const STREAM_TICK: Duration = Duration::from_secs(1);
/// How often a call in full flow looks whether its client is still there; in silence it does every 100 ms.
pub(crate) const GONE_CHECK: Duration = Duration::from_millis(50);
/// How long `/readyz` waits for Fabric.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer of `/readyz` is good for further probes.
pub(crate) const READY_TTL: Duration = Duration::from_secs(1);
/// What calls that were stopped at the end of `--drain-timeout`, or of [`STDIO_DRAIN`], get to send their answers.
pub(crate) const ABORT_GRACE: Duration = Duration::from_millis(500);
/// How long browsers may keep the answer to a preflight.
pub(crate) const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3600);
/// How long a worker thread waits for another call before it ends.
pub(crate) const WORKER_IDLE: Duration = Duration::from_secs(60);

/// Silence of Fabric after which a heartbeat progress is sent.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
/// Silence on an event stream after which a comment is sent, so that proxies keep it open.
pub(crate) const SSE_COMMENT: Duration = Duration::from_secs(15);
/// How long what still runs may go on after the end of stdin.
pub(crate) const STDIO_DRAIN: Duration = Duration::from_secs(2);
/// How long clients of 2026-07-28 may keep what only changes with the program: tools, templates, `server/discover`.
pub(crate) const STATIC_TTL: Duration = Duration::from_secs(3600);
/// Waits before the second and the third try of a GET; a run is never tried again.
pub(crate) const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(400)];
/// Waits before an empty list of models is asked for again: Fabric may still be asking the vendors for another caller.
pub(crate) const EMPTY_MODELS_DELAYS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_millis(1000)];
/// Shortest time that can be set.
pub(crate) const MIN_TIME: Duration = Duration::from_millis(1);
/// Longest time that can be set: a week.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

// Log.

/// Lines that may wait for stderr; further ones are dropped and counted.
pub(crate) const MAX_LOG_LINES: usize = 1024;
/// Longest message of one log line, in bytes; the rest is cut off.
pub(crate) const MAX_LOG_LINE: usize = 4 << 10;
/// How long the end of the process waits for the last lines to be written.
pub(crate) const LOG_FLUSH: Duration = Duration::from_millis(200);

// Command line and environment.

/// Longest key or token, in bytes.
pub(crate) const MAX_SECRET: usize = 4 << 10;
/// A token shorter than this many characters is taken, with a warning.
pub(crate) const SHORT_TOKEN: usize = 16;
/// Longest `--path` and base URL, in bytes.
pub(crate) const MAX_ADDRESS: usize = 2 << 10;
/// Port to listen on unless `--port` says otherwise.
pub(crate) const DEFAULT_PORT: u16 = 8000;
/// Paths the server answers itself, which `--path` may not take.
pub(crate) const OPERATIONS_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// How clients reach this server: `--transport`, default stdio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// One client, over stdin and stdout.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Everything of ours; never what libraries log.
    Debug,
    /// One line per call, and what happens to the server.
    Info,
    /// What may need a look.
    Warning,
    /// What failed.
    Error,
    /// Only what ends the process.
    Critical,
}

/// Everything one run of the server has been told.
#[derive(Clone, Debug)]
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
    /// Patterns that are refused by default and that the operator allows: `--allow-pattern`.
    pub(crate) allowed_patterns: Vec<String>,
    /// Patterns the operator refuses: `--deny-pattern`. A pattern that is on both lists is refused.
    pub(crate) denied_patterns: Vec<String>,
    /// How long the list of patterns and strategies is good: `--catalog-ttl`; default 300 s.
    pub(crate) catalog_ttl: Duration,
    /// Runs at once: `--max-runs`; default [`STDIO_MAX_RUNS`] or [`HTTP_MAX_RUNS`].
    pub(crate) max_runs: usize,
    /// Bytes that requests, calls, outputs and answers may hold together: `--max-memory`; default 256 MiB.
    pub(crate) max_memory: usize,
    /// What only the HTTP transports need; `drain_timeout` counts on stdio too.
    pub(crate) http: Http,
    /// Use the built-in Fabric instead of `fabric.url`: `--demo`.
    pub(crate) demo: bool,
    /// Things the operator should know though they are not errors: one line each, to be logged at the start.
    pub(crate) warnings: Vec<String>,
}

/// Who may come in over HTTP, and how much of it at once.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    /// Further values of `Host` that are let in: a name or address in lower case, with or without a port.
    /// Loopback names and the bound address always are. `--allowed-host`.
    pub(crate) allowed_hosts: Vec<String>,
    /// Further values of `Origin` that are let in: `scheme://host[:port]` in lower case, without the scheme's own
    /// port, as browsers send it. `--allowed-origin`.
    pub(crate) allowed_origins: Vec<String>,
    /// The bearer token callers must show: `FABRIC_MCP_AUTH_TOKEN` or `FABRIC_MCP_AUTH_TOKEN_FILE`. Visible ASCII.
    pub(crate) token: Option<Secret>,
    /// `--allow-unauthenticated`: listen beyond loopback without a token. Without it that is a start-up error.
    pub(crate) allow_unauthenticated: bool,
    /// Runs per minute and token or peer address; 0, the default, means no limit. `--max-calls-per-minute`.
    pub(crate) max_calls_per_minute: u32,
    /// How long what runs may go on after SIGTERM or SIGINT: `--drain-timeout`; default 10 s.
    pub(crate) drain_timeout: Duration,
    /// Connections at once: `--max-connections`; default 512.
    pub(crate) max_connections: usize,
}

/// How long `accept` rests at most after an error of this machine (no file descriptors, no memory), so that it does not
/// spin; less when closing an idle connection has made room.
pub(crate) const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often it is logged that connections cannot be accepted, while that goes on.
pub(crate) const HTTP_ACCEPT_LOG: Duration = Duration::from_secs(10);
/// How many connections may be on their way out, told to close but not yet gone, before `accept` waits for one.
pub(crate) const HTTP_MAX_CLOSING: usize = 64;
/// How long a connection is still read after an early answer, so that the client sees the answer and not a reset.
pub(crate) const HTTP_LINGER_TIME: Duration = Duration::from_secs(2);
/// How much is read, in bytes, for the same reason.
pub(crate) const HTTP_LINGER_BYTES: usize = 32 << 20;
/// Slowest reader tolerated beyond `write_timeout`, in bytes a second over one response or event.
pub(crate) const HTTP_MIN_WRITE_RATE: u64 = 32 << 10;
/// Longest line between the chunks of a request's body, in bytes: the size and whatever extensions follow it.
pub(crate) const HTTP_MAX_CHUNK_LINE: usize = 1 << 10;

/// A value that must never be shown: `Debug` and `Display` print a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Takes a secret in.
    pub(crate) fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The secret itself, for the one place that has to send or compare it.
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
#[derive(Clone, Debug)]
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
    /// The same for the list of models, which may ask every vendor; default 120 s. `--models-timeout`.
    pub(crate) models_timeout: Duration,
}

/// What one HTTP server takes, keeps and waits for.
#[derive(Clone, Debug)]
pub(crate) struct HttpLimits {
    /// Connections at once, each with a thread; default 512. At the limit the longest idle one makes room.
    pub(crate) max_connections: usize,
    /// Request line and headers, in bytes; default 16 KiB.
    pub(crate) max_head: usize,
    /// Headers in one request; default 100.
    pub(crate) max_headers: usize,
    /// From the first byte of a request to the end of its head; default 10 s.
    pub(crate) head_timeout: Duration,
    /// One body, in bytes; default [`MAX_MESSAGE`].
    pub(crate) max_body: usize,
    /// From the moment a body is asked for to its last byte; default 30 s.
    pub(crate) body_timeout: Duration,
    /// Between two requests on a connection; default 75 s.
    pub(crate) idle_timeout: Duration,
    /// A write that makes no progress; default 30 s.
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
