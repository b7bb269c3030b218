//! URLs that are identifiers: kept and compared byte for byte.

use std::fmt;
use std::ops::Range;

use crate::access::outbound;
use crate::agent::is_loopback;
use crate::config::MAX_ADDRESS;

/// An issuer, a resource or an endpoint: https, or http on this machine; no user-info, query or fragment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct WebUrl {
    text: String,
    host: Range<usize>,
    /// Where the path begins.
    path: usize,
}

impl WebUrl {
    /// Takes `text` as it is. The error is one line without the name of the flag, and repeats nothing of the URL: what is
    /// wrong in it may be a password.
    pub(crate) fn parse(text: &str) -> Result<WebUrl, String> {
        let fail = |why: &str| Err(why.to_owned());
        if text.len() > MAX_ADDRESS {
            return fail("the URL is longer than 2048 bytes");
        }
        let Some(rest) = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))
        else {
            return fail("the URL must begin with https://");
        };
        let start = text.len() - rest.len();
        if rest.contains(['?', '#']) {
            return fail("the URL must end with the path, without ? or #");
        }
        let path = start + rest.find('/').unwrap_or(rest.len());
        if text[start..path].contains('@') {
            return fail("the URL holds a user name or password; take the part before the @ out");
        }
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte))
        {
            return fail("the URL holds characters that must be percent-encoded");
        }
        let Some(host) = outbound::host(text) else {
            return fail("the URL has no host, or one that cannot be read");
        };
        let authority = &text[start..path];
        let port = authority.strip_prefix(&*host).unwrap_or(":");
        let is_port = |port: &str| {
            port.parse::<u16>().is_ok_and(|number| number > 0) && !port.starts_with('+')
        };
        if host.is_empty() || !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
            return fail("the URL has no host, or a port that is not a number from 1 to 65535");
        }
        let url = WebUrl {
            text: text.to_owned(),
            host: start..start + host.len(),
            path,
        };
        if !url.is_https() && !url.is_local() {
            return fail(
                "the URL must begin with https://; only on this machine (127.0.0.1, localhost) http:// will do",
            );
        }
        Ok(url)
    }

    /// The URL as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Is it https?
    pub(super) fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// Does it name this machine?
    fn is_local(&self) -> bool {
        is_loopback(&self.text[self.host.clone()])
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> &str {
        &self.text[..self.path]
    }

    /// The path without the slash at its end; nothing if there is none.
    pub(super) fn path(&self) -> &str {
        let path = &self.text[self.path..];
        path.strip_suffix('/').unwrap_or(path)
    }

    /// Is `other` the same URL, byte for byte? Only an empty path may be written as a slash: to RFC 3986 (6.2.3) these
    /// are one URL, and the URL classes of most languages add it.
    pub(super) fn is(&self, other: &str) -> bool {
        let bare = other.strip_suffix('/').unwrap_or(other);
        self.text == other || self.path().is_empty() && self.origin() == bare
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_kept_to_the_letter() {
        for (text, origin, path) in [
            ("https://As.example", "https://As.example", ""),
            ("https://as.example/", "https://as.example", ""),
            (
                "https://as.example:8443/Tenant/1/",
                "https://as.example:8443",
                "/Tenant/1",
            ),
            (
                "http://127.0.0.1:80/a@b/%20",
                "http://127.0.0.1:80",
                "/a@b/%20",
            ),
            ("http://[::1]:9/x", "http://[::1]:9", "/x"),
            ("http://LOCALHOST", "http://LOCALHOST", ""),
        ] {
            let url = WebUrl::parse(text).unwrap();
            assert_eq!(
                (url.as_str(), url.origin(), url.path()),
                (text, origin, path)
            );
        }
    }

    #[test]
    fn other_urls_are_refused_and_not_repeated() {
        let scheme = "the URL must begin with https://";
        let local = "the URL must begin with https://; only on this machine (127.0.0.1, localhost) http:// will do";
        let user = "the URL holds a user name or password; take the part before the @ out";
        let end = "the URL must end with the path, without ? or #";
        let characters = "the URL holds characters that must be percent-encoded";
        let host = "the URL has no host, or one that cannot be read";
        let port = "the URL has no host, or a port that is not a number from 1 to 65535";
        for (text, why) in [
            ("", scheme),
            ("as.example", scheme),
            ("HTTPS://as.example", scheme),
            ("ftp://as.example", scheme),
            ("http://as.example", local),
            ("http://10.0.0.1", local),
            ("http://localhost.example", local),
            ("https://joe:pass@as.example", user),
            ("http://127.0.0.1@as.example", user),
            ("https://as.example/?key=pass", end),
            ("https://as.example#pass", end),
            ("https://as.example/a b", characters),
            ("https://as.example/\r\nX: y", characters),
            ("https://as.example/\"", characters),
            ("https://äs.example", characters),
            ("https://", host),
            ("https:///path", host),
            ("https://:443", port),
            ("https://as.example:", port),
            ("https://as.example:0", port),
            ("https://as.example:+1", port),
            ("https://as.example:65536", port),
            ("https://[::1", host),
        ] {
            let error = WebUrl::parse(text).expect_err(text);
            // Which of the two says it of a broken authority is the parser's business.
            if why == host || why == port {
                assert!(error == host || error == port, "{text}: {error}");
            } else {
                assert_eq!(error, why, "{text}");
            }
            assert!(
                !error.contains("pass@") && !error.contains("joe"),
                "{error}"
            );
        }
        assert!(WebUrl::parse(&format!("https://a/{}", "x".repeat(2039))).is_err());
    }

    #[test]
    fn only_the_slash_of_no_path_may_differ() {
        let is = |url: &str, other: &str| WebUrl::parse(url).unwrap().is(other);
        assert!(
            is("https://h", "https://h")
                && is("https://h", "https://h/")
                && is("https://h/", "https://h")
        );
        assert!(is("https://h/mcp", "https://h/mcp"));
        for other in [
            "https://h/mcp/",
            "https://H/mcp",
            "https://h:443/mcp",
            "https://h/MCP",
            "https://h",
            "",
        ] {
            assert!(!is("https://h/mcp", other), "{other}");
        }
        for other in [
            "https://h//",
            "https://h/x",
            "https://",
            "https://h:443",
            "http://h",
        ] {
            assert!(!is("https://h", other), "{other}");
        }
    }
}
