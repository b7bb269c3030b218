//! Why a caller is refused, in HTTP's and OAuth's terms.

use std::time::Duration;

use super::identity::Role;

/// Why a caller is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessError {
    /// No token was sent.
    NoToken,
    /// An invalid one was sent.
    BadToken(Flaw),
    /// The token is valid, but this needs another role, the one given here.
    Forbidden(Role),
    /// Callers without a line of their own are not let in now: the line `*` has expired or has a mistake.
    Closed,
    /// The token cannot be checked now; ask again after this time.
    Unavailable(Duration),
}

/// What is wrong with a token: the label for metrics, and the words. The words have no quotes, because headers carry
/// them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flaw(&'static str, pub(super) &'static str);

impl Flaw {
    pub(super) const UNKNOWN: Flaw = Flaw("unknown", "this server does not know this token");
    pub(super) const PLACEHOLDER: Flaw = Flaw(
        "placeholder",
        "the client sent a placeholder: put the token itself there, or start the client where its variable is set",
    );
    pub(super) const INACTIVE: Flaw = Flaw(
        "inactive",
        "the issuer does not know the token, or it has expired or was revoked",
    );
    pub(super) const AUDIENCE: Flaw = Flaw(
        "audience",
        "the token was not issued for this server: ask for one with this server as its resource",
    );
    pub(super) const ISSUER: Flaw = Flaw("issuer", "the token comes from another issuer");
    pub(super) const EXPIRED: Flaw = Flaw("expired", "the token has expired");
    /// Also where the issuer's answer about the token makes no sense to us.
    pub(super) const KIND: Flaw = Flaw("kind", "the token is not a plain bearer token");
    pub(super) const NOBODY: Flaw = Flaw(
        "nobody",
        "the issuer names no subject (sub) of the token: have it add sub to its introspection responses, as Keycloak does with the client scope basic",
    );
}

impl AccessError {
    /// HTTP's status, and the reason for metrics: one of a dozen words.
    pub(crate) fn status(self) -> (u16, &'static str) {
        match self {
            AccessError::NoToken => (401, "no_token"),
            AccessError::BadToken(flaw) => (401, flaw.0),
            AccessError::Forbidden(_) => (403, "forbidden"),
            AccessError::Closed => (403, "closed"),
            AccessError::Unavailable(_) => (503, "unavailable"),
        }
    }

    /// What happened, why, and what to do.
    pub(crate) fn detail(self) -> String {
        match self {
            AccessError::NoToken => {
                "A token is needed: send the header \"Authorization: Bearer TOKEN\".".to_owned()
            }
            AccessError::BadToken(Flaw(_, why)) => {
                format!("The bearer token is refused: {why}. Get a valid one, then ask again.")
            }
            AccessError::Forbidden(role) => format!(
                "This token may not do that: the request needs the role {}, or the OAuth scope {}.",
                role.name(),
                role.scope()
            ),
            AccessError::Closed => "Only callers with a line of their own in the tokens file are admitted now, because its line * has expired or has a mistake. Tell the operator."
                .to_owned(),
            AccessError::Unavailable(_) => format!(
                "This token cannot be checked now, because its issuer gives no usable answer, or is asked about too many tokens at once. Try again in {} s.",
                self.retry_after().unwrap_or_default()
            ),
        }
    }

    /// The seconds of `Retry-After`.
    pub(crate) fn retry_after(self) -> Option<u64> {
        match self {
            // Rounded up: a retry that is too early is rejected again.
            AccessError::Unavailable(time) => Some(time.as_millis().div_ceil(1000).max(1) as u64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let refusals = [
            AccessError::NoToken,
            AccessError::BadToken(Flaw::PLACEHOLDER),
            AccessError::BadToken(Flaw::UNKNOWN),
            AccessError::Forbidden(Role::Run),
            AccessError::Closed,
            AccessError::Unavailable(Duration::from_millis(1001)),
        ];
        let found = refusals.map(|refusal| {
            let (status, label) = refusal.status();
            format!("{status} {label}: {}", refusal.detail())
        });
        let expected = "\
401 no_token: A token is needed: send the header \"Authorization: Bearer TOKEN\".
401 placeholder: The bearer token is refused: the client sent a placeholder: put the token itself there, or start the \
client where its variable is set. Get a valid one, then ask again.
401 unknown: The bearer token is refused: this server does not know this token. Get a valid one, then ask again.
403 forbidden: This token may not do that: the request needs the role run, or the OAuth scope fabric:run.
403 closed: Only callers with a line of their own in the tokens file are admitted now, because its line * has expired or has a mistake. Tell the operator.
503 unavailable: This token cannot be checked now, because its issuer gives no usable answer, or is asked about too many tokens at once. Try again in 2 s.";
        assert_eq!(found.join("\n"), expected);
        let found = AccessError::Unavailable(Duration::ZERO).retry_after();
        assert_eq!(found, Some(1));
        assert_eq!(AccessError::NoToken.retry_after(), None);
    }
}
