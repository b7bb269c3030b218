//! Fabric's base URL: validation and normal form.
//!
//! Not in scope: resolving the name, and detecting a wrong URL by its response (`check`). No message repeats a part of
//! the URL that may be a password: anything before an `@`, or a query.

use super::MAX_ADDRESS;
use crate::net::{Authority, AuthorityError};

const EXAMPLE: &str = "give something like http://127.0.0.1:8080";

/// Validates a URL with scheme, host, and optional port and path prefix. Returns it with scheme and host in lower case
/// and without trailing slashes. The error is one line without the name of the flag or variable.
pub(crate) fn base_url(text: &str) -> Result<String, String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Err(format!("the URL is empty; {EXAMPLE}"));
    }
    if text.len() > MAX_ADDRESS {
        return Err(format!(
            "the URL is longer than {MAX_ADDRESS} bytes; {EXAMPLE}"
        ));
    }
    let (scheme, rest) = split_scheme(text)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("the URL holds a user name or password, which would end up in logs and never reaches Fabric; \
             take the part before the @ out and set FABRIC_API_KEY instead"
            .to_owned());
    }
    if path.contains(['?', '#']) {
        return Err(format!(
            "the URL must end with the path, without ? or #; {EXAMPLE}"
        ));
    }
    if let Some(bad) = path
        .chars()
        .find(|c| !c.is_ascii_graphic() || "\\\"<>^`{|}".contains(*c))
    {
        return Err(format!(
            "the URL's path must not hold {}; write it percent-encoded",
            bad.escape_debug()
        ));
    }
    let authority = Authority::parse(authority).map_err(explain)?;
    Ok(format!(
        "{scheme}://{authority}{}",
        path.trim_end_matches('/')
    ))
}

fn split_scheme(text: &str) -> Result<(&'static str, &str), String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        // The guess is shown only if no part of it can be a password.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]/".contains(c);
        let guess = text.trim_start_matches(['/', ':']);
        return Err(
            if guess.chars().all(plain) && base_url(&format!("http://{guess}")).is_ok() {
                format!("the URL has no scheme; did you mean http://{guess}?")
            } else {
                format!("the URL must begin with http:// or https://; {EXAMPLE}")
            },
        );
    };
    if scheme.eq_ignore_ascii_case("http") {
        Ok(("http", rest))
    } else if !scheme.eq_ignore_ascii_case("https") {
        Err(format!(
            "the URL must begin with http:// or https://; {EXAMPLE}"
        ))
    } else if cfg!(feature = "tls") {
        Ok(("https", rest))
    } else {
        Err("this build has no TLS and cannot use https://; use http://, or a build with the feature tls".to_owned())
    }
}

/// The message for a wrong host or port.
fn explain(error: AuthorityError) -> String {
    match error {
        AuthorityError::NoHost => return format!("the URL has no host; {EXAMPLE}"),
        AuthorityError::Name => {
            "the URL's host may only hold letters, digits, - . and _; write other names in punycode"
        }
        AuthorityError::Bracket => "the URL's IPv6 address lacks its closing bracket",
        AuthorityError::NotIpv6 => {
            "what the URL has in brackets is not an IPv6 address; write it like http://[::1]:8080"
        }
        AuthorityError::AfterBracket => {
            "after the URL's IPv6 address only a port may follow, as in [::1]:8080"
        }
        AuthorityError::Colons => {
            "the URL has too many colons; an IPv6 address goes in brackets, as in http://[::1]:8080"
        }
        AuthorityError::Port => "the URL's port must be a number from 1 to 65535",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls_are_kept_in_one_form() {
        for (given, kept) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("HTTP://Fabric.Example", "http://fabric.example"),
            (
                "http://fabric.example/API/v1//",
                "http://fabric.example/API/v1",
            ),
            (
                "http://fabric.example/a@b/%20",
                "http://fabric.example/a@b/%20",
            ),
            ("http://[::1]:8080/x", "http://[::1]:8080/x"),
            ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
            ("http://my_fabric:1", "http://my_fabric:1"),
            ("http://fabric:65535", "http://fabric:65535"),
            ("http://fabric:0080", "http://fabric:80"),
            (" http://fabric\n", "http://fabric"),
        ] {
            assert_eq!(base_url(given).as_deref(), Ok(kept), "{given}");
        }
    }

    #[test]
    fn bad_urls_are_refused_with_the_way_out() {
        let scheme = "the URL must begin with http:// or https://; give something like http://127.0.0.1:8080";
        let user = "the URL holds a user name or password, which would end up in logs and never reaches Fabric; take \
                    the part before the @ out and set FABRIC_API_KEY instead";
        let port = "the URL's port must be a number from 1 to 65535";
        let host = "the URL's host may only hold letters, digits, - . and _; write other names in punycode";
        let colons = "the URL has too many colons; an IPv6 address goes in brackets, as in http://[::1]:8080";
        let ends = "the URL must end with the path, without ? or #; give something like http://127.0.0.1:8080";
        let no_host = "the URL has no host; give something like http://127.0.0.1:8080";
        for (given, reason) in [
            (
                "",
                "the URL is empty; give something like http://127.0.0.1:8080",
            ),
            (
                "localhost:8080",
                "the URL has no scheme; did you mean http://localhost:8080?",
            ),
            (
                "//fabric/api",
                "the URL has no scheme; did you mean http://fabric/api?",
            ),
            (
                "[::1]:8080",
                "the URL has no scheme; did you mean http://[::1]:8080?",
            ),
            ("joe:pass@fabric", scheme),
            ("fabric?key=pass", scheme),
            ("ftp://fabric", scheme),
            ("http:/fabric", scheme),
            ("http:\\\\fabric", scheme),
            ("http://joe:pass@fabric:8080", user),
            (
                "https://pass@fabric",
                if cfg!(feature = "tls") { user } else { NO_TLS },
            ),
            ("http://joe:pa/ss@fabric", port),
            ("http://joe:pass/@fabric", port),
            ("http://fabric/?key=pass", ends),
            ("http://fabric?key=pass", ends),
            ("http://fabric#pass", ends),
            ("http://", no_host),
            ("http:///patterns", no_host),
            ("http://:8080", no_host),
            ("http://fabric:", port),
            ("http://fabric:0", port),
            ("http://fabric:65536", port),
            ("http://fabric:+80", port),
            ("http://[::1]:", port),
            ("http://fab ric", host),
            ("http://fäbric", host),
            ("http://fabric\r\nX: y", host),
            ("http://::1:8080", colons),
            (
                "http://[::1",
                "the URL's IPv6 address lacks its closing bracket",
            ),
            (
                "http://[fabric]",
                "what the URL has in brackets is not an IPv6 address; write it like http://[::1]:8080",
            ),
            (
                "http://[::1]8080",
                "after the URL's IPv6 address only a port may follow, as in [::1]:8080",
            ),
            (
                "http://fabric/a b",
                "the URL's path must not hold  ; write it percent-encoded",
            ),
            (
                "http://fabric/a\nb",
                "the URL's path must not hold \\n; write it percent-encoded",
            ),
            (
                "http://fabric/{x}",
                "the URL's path must not hold {; write it percent-encoded",
            ),
        ] {
            let error = base_url(given).expect_err(given);
            assert_eq!(error, reason, "{given}");
            assert!(
                !error.contains("pass") || error.contains("password"),
                "{error}"
            );
            assert!(!error.contains("joe"), "{error}");
        }
    }

    const NO_TLS: &str = "this build has no TLS and cannot use https://; use http://, or a build with the feature tls";

    #[test]
    fn https_needs_the_feature() {
        let expected = if cfg!(feature = "tls") {
            Ok("https://fabric".to_owned())
        } else {
            Err(NO_TLS.to_owned())
        };
        assert_eq!(base_url("https://fabric"), expected);
    }

    #[test]
    fn the_length_is_bounded() {
        let fits = format!("http://f/{}", "x".repeat(MAX_ADDRESS - 9));
        assert_eq!(base_url(&fits), Ok(fits.clone()));
        let long = format!("{fits}x");
        assert_eq!(
            base_url(&long).unwrap_err(),
            "the URL is longer than 2048 bytes; give something like http://127.0.0.1:8080"
        );
    }
}
