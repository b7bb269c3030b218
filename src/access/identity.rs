//! Who a caller is, and what it may do.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::encoding::percent::percent_encode_but;
use crate::logging;
use crate::sync::Finally;
use crate::table::table;
use crate::url::network;

table! {
    /// What a caller may do; each role may do what those before it may. Its row: the name in the tokens file, and the
    /// smallest OAuth scope that gives it.
    #[derive(Default, PartialOrd, Ord)]
    Role: (&'static str, &'static str) as row {
        /// Only `/metrics`.
        #[default]
        Metrics = ("metrics", "fabric:read");
        /// Everything that makes no run.
        Read = ("read", "fabric:read");
        /// Everything.
        Run = ("run", "fabric:run");
    }
}

impl Role {
    /// The role of that name.
    pub(crate) fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    /// The name in the tokens file.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    /// The smallest OAuth scope that gives it.
    pub(crate) fn scope(self) -> &'static str {
        self.row().1
    }
}

/// Who a caller is, and the mark on what belongs to it. What belongs to one identity is invisible to others. It can
/// stand in a log line or a label as it is. Files do not name addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Identity {
    /// An authenticated caller, by a unique and stable name: `token:NAME`, `oauth:ISSUER#SUBJECT` or
    /// `oauth-client:ISSUER#ID`, percent-encoded. A client is not the user whose subject is its id.
    Named(Arc<str>),
    /// The user who started this program, over stdio. A run in a state folder belongs to everybody who can open the
    /// folder.
    #[default]
    #[serde(rename = "folder")]
    Local,
    /// Without authentication: an IPv4 address, or the /64 network of an IPv6 address.
    #[serde(rename = "key")]
    Peer(#[serde(skip, default = "unnamed")] IpAddr),
}

/// The address of the caller who began a run that was found in a file.
fn unnamed() -> IpAddr {
    Ipv4Addr::UNSPECIFIED.into()
}

impl Identity {
    /// The holder of the token of this name.
    pub(super) fn token(name: &str) -> Identity {
        Identity::Named(format!("token:{}", encoded(name)).into())
    }

    /// The subject of this name at an issuer, or `is_client`: a client that acts for itself.
    pub(super) fn oauth(is_client: bool, issuer: &str, name: &str) -> Identity {
        let kind = if is_client { "oauth-client" } else { "oauth" };
        Identity::Named(format!("{kind}:{}#{}", encoded(issuer), encoded(name)).into())
    }

    /// The caller at `ip`, without authentication.
    pub(crate) fn peer(ip: IpAddr) -> Identity {
        Identity::Peer(network(ip))
    }

    /// Whether this caller may see what belongs to `other`. Without authentication all callers share, because one
    /// client may come from several addresses. A user who can open the state folder can read everybody's files in it.
    pub(crate) fn shares_with(&self, other: &Identity) -> bool {
        match (self, other) {
            (Identity::Peer(_), Identity::Peer(_)) | (Identity::Local, _) => true,
            (one, other) => one == other,
        }
    }

    /// The token's name, `oauth:` and the subject, `oauth-client:` and the client's id, or the address: `caller=` in the log.
    pub(crate) fn name(&self) -> String {
        match self {
            Identity::Named(full) => match full.split_once(':') {
                Some(("token", name)) => name.to_owned(),
                Some((kind, rest)) => format!("{kind}:{}", rest.rsplit('#').next().unwrap_or(rest)),
                None => full.to_string(),
            },
            Identity::Peer(ip) => ip.to_string(),
            Identity::Local => "stdio".to_owned(),
        }
    }

    /// Adds the caller to this thread's log lines until the guard is dropped. Does nothing where there is only one caller.
    pub(crate) fn log_scope(&self) -> Option<Finally<impl FnMut() + use<>>> {
        (*self != Identity::Local).then(|| logging::scope(&logging::CALLER, self.name()))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Named(full) => f.write_str(full),
            Identity::Local => f.write_str("stdio"),
            Identity::Peer(ip) => write!(f, "peer:{ip}"),
        }
    }
}

/// Percent-encodes everything but letters, digits and harmless punctuation.
fn encoded(name: &str) -> String {
    percent_encode_but("@:/+|*!", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_include_one_another() {
        assert!(Role::Run > Role::Read && Role::Read > Role::Metrics);
        for role in Role::ALL {
            assert_eq!(Role::named(role.name()), Some(role));
        }
        for bad in ["", "Run", "admin", "run "] {
            assert_eq!(Role::named(bad), None, "{bad}");
        }
        let found = Role::ALL.map(Role::scope);
        assert_eq!(found, ["fabric:read", "fabric:read", "fabric:run"]);
    }

    #[test]
    fn identities_are_shown_so_that_no_line_breaks() {
        let user = |subject| Identity::oauth(false, "https://as.example/t", subject);
        for (identity, shown, name) in [
            (Identity::token("ci-1"), "token:ci-1", "ci-1"),
            (
                user("auth0|42"),
                "oauth:https://as.example/t#auth0|42",
                "oauth:auth0|42",
            ),
            (
                user("a b=\"c\"\r\nx%20é#"),
                "oauth:https://as.example/t#a%20b%3D%22c%22%0D%0Ax%2520%C3%A9%23",
                "oauth:a%20b%3D%22c%22%0D%0Ax%2520%C3%A9%23",
            ),
        ] {
            assert_eq!(identity.to_string(), shown);
            assert_eq!(identity.name(), name);
        }
    }

    #[test]
    fn a_client_is_not_the_user_of_the_same_name() {
        let [user, client] = [false, true]
            .map(|is_client| Identity::oauth(is_client, "https://as.example", "alice"));
        assert_ne!(user, client);
        assert_ne!(user, Identity::token("alice"));
        assert_eq!(user.to_string(), "oauth:https://as.example#alice");
        assert_eq!(client.to_string(), "oauth-client:https://as.example#alice");
        assert!(!user.shares_with(&client) && user.shares_with(&user.clone()));
    }

    #[test]
    fn a_network_is_one_peer() {
        for (ip, shown) in [
            ("10.0.0.1", "peer:10.0.0.1"),
            ("::ffff:10.0.0.1", "peer:10.0.0.1"),
            ("2001:db8::7:1", "peer:2001:db8::"),
        ] {
            assert_eq!(Identity::peer(ip.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn addresses_share_what_they_have() {
        let [one, other] = ["127.0.0.1", "::1"].map(|ip| Identity::peer(ip.parse().unwrap()));
        assert!(one.shares_with(&other) && !one.shares_with(&Identity::token("127.0.0.1")));
    }

    #[test]
    fn files_name_no_address() {
        let peer = Identity::peer(IpAddr::from([10, 0, 0, 1]));
        for (identity, file) in [
            (Identity::token("a"), r#"{"named":"token:a"}"#),
            (Identity::Local, r#""folder""#),
            (peer, r#""key""#),
        ] {
            assert_eq!(serde_json::to_string(&identity).unwrap(), file);
            let read: Identity = serde_json::from_str(file).unwrap();
            assert!(read.shares_with(&identity), "{file}");
        }
    }
}
