//! The page for a person who opens the server's URL in a browser: how to add it to each client.
//!
//! In scope: which requests get it, and what it says. Not in scope: the clients (`clients`) and whether Fabric answers
//! (`ops`). It says nothing that only callers may know, and has neither scripts nor cookies nor anything from elsewhere.

use crate::clients::CLIENTS;
use crate::config::{Config, Transport};
use crate::http::{Head, Method, names};

/// The parts of the page: the beginning, what callers need (in three cases), what comes before the clients, one client,
/// and the end.
const TEXT: &str = include_str!("page.html");

/// The headers of the page. The digest is that of its style.
pub(super) const HEADERS: [(&str, &str); 5] = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'sha256-ROCTKHQWx96trWC0ynGdCVDYbqd2rqTc0UmOPNOC48g='; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
];

/// Whether a browser asks for the page of a server with this `path`, and no MCP client: for HTML, without a token or a
/// session.
pub(super) fn is_for(head: &Head, path: &str) -> bool {
    let rest = head.path().strip_prefix(path.trim_end_matches('/'));
    let is_here = head.path() == "/" || matches!(rest, Some("" | "/"));
    let shows = |name| head.header(name).is_some();
    let is_other = || shows("authorization") || shows("mcp-session-id");
    let accepts = |kind| names(head.headers_named("accept"), &[kind]);
    let is_read = matches!(head.method, Method::Get | Method::Head);
    is_read && is_here && !is_other() && accepts("text/html") && !accepts("text/event-stream")
}

/// The page of a server with these settings, for the sender of `head`, whose `Host` has been checked; `is_ready` if
/// Fabric answers.
pub(super) fn text(config: &Config, head: &Head, is_ready: bool) -> String {
    let parts: Vec<&str> = TEXT.split("@@").collect();
    let [before, open, oauth, token, between, row, after] = parts[..] else {
        return String::new();
    };
    let is_sse = config.transport == Transport::Sse;
    // What a proxy says of its scheme changes nothing but this answer.
    let proxy = head.header("x-forwarded-proto").unwrap_or_default();
    // Of several proxies, the first is the one that the client reached.
    let proxy = proxy.split(',').next().unwrap_or_default().trim();
    let scheme = ["http", "https"][usize::from(proxy.eq_ignore_ascii_case("https"))];
    let host = head.host().unwrap_or_default();
    let here = format!("{scheme}://{host}{}", config.path);
    let (needs, url) = match &config.http.oauth {
        Some(settings) => (oauth, settings.resource.as_str().to_owned()),
        None if config.http.is_open() => (open, here),
        None => (token, here),
    };
    let agent = head.header("user-agent").unwrap_or_default();
    let agent = agent.to_ascii_lowercase().replace(' ', "");
    let mut systems = ["windows", "macos"].into_iter();
    let system = systems.find(|system| agent.contains(system));
    let rows = CLIENTS.iter().filter_map(|client| {
        let launch = client.reaching(url.clone(), is_sse, needs == token)?;
        let [what, entry] = client.by_hand(system.unwrap_or("linux"), &launch);
        let names = [("@TITLE@", client.title), ("@THEN@", client.then)];
        let texts = [("@WHAT@", &*what), ("@ENTRY@", &entry)];
        Some(filled(&filled(row, &names), &texts))
    });
    let rows: String = rows.collect();
    let states = ["does not answer at the moment", "answers", "is not needed"];
    let state = states[usize::from(is_ready).max(2 * usize::from(config.policy.patterns_only))];
    let filled = |part| filled(part, &[("@STATE@", state), ("@URL@", &url)]);
    [&filled(before), needs, &filled(between), &rows, after].concat()
}

/// The text with its holes, which stand between tags, filled one after the other.
fn filled(text: &str, holes: &[(&str, &str)]) -> String {
    holes.iter().fold(text.to_owned(), |text, (hole, value)| {
        text.replace(hole, &value.replace('&', "&amp;").replace('<', "&lt;"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{base64, sha256::sha256_hex};

    #[test]
    fn the_policy_allows_this_style_and_nothing_else() {
        let text = TEXT.replace('\r', "");
        let style = text.split("<style>").nth(1).unwrap();
        let hex = sha256_hex(style.split("</style>").next().unwrap().as_bytes());
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let digest: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let digest = format!("'sha256-{}'", base64::encode(&digest));
        assert!(HEADERS[2].1.contains(&digest), "{digest}");
        for outside in [
            "<script", "http:", "https:", "src=", "href=", "style=", "url(",
        ] {
            assert!(!text.contains(outside), "{outside}");
        }
    }
}
