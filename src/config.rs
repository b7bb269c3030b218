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
