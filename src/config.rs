//! What one run of the program has been told: flags over environment over defaults, validated once.
//!
//! In scope: every setting and every bound, each with its unit and default, and the types that hold them. Not in
//! scope: how flags are written (`cli`) and what the settings do (everyone else).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Largest message taken in, a line on stdio or a body over HTTP, in bytes.
pub(crate) const MAX_MESSAGE: usize = 8 << 20;
/// Largest JSON body taken from Fabric, in bytes.
pub(crate) const MAX_FABRIC_BODY: usize = 16 << 20;
/// Largest output of one run, in bytes of text.
pub(crate) const MAX_RUN_OUTPUT: usize = 32 << 20;

/// How long `accept` rests at most after an error of this machine (no file descriptors, no memory), so that it does not
/// spin; less when closing an idle connection has made room.
pub(crate) const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
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
    /// The bodies of all connections together, in bytes; default 256 MiB.
    pub(crate) max_bodies: usize,
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
            max_bodies: 256 << 20,
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            stack_size: if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 },
        }
    }
}
