//! The era of a request, the order of the modern envelope's checks, and HTTP's headers.

use std::borrow::Cow;

use super::*;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn with_meta(method: &str, meta: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{{meta}}}}}}}"#)
}

fn missing(name: &str, what: &str) -> String {
    let words = format!(
        "params._meta[\"io.modelcontextprotocol/{name}\"] must be {what}: every request of 2026-07-28 carries it."
    );
    error(ID, -32602, &words)
}

#[test]
fn the_envelope_is_checked_whatever_the_pipe_speaks() {
    let envelope = format!(r#""{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}"#);
    let levels = "one of debug, info, notice, warning, error, critical, alert, emergency";
    for pipe in [
        TestClient::new(),
        TestClient::speaking(Revision::R2024_11_05),
        TestClient::speaking(Revision::R2025_11_25),
    ] {
        let capabilities = missing("clientCapabilities", "an object");
        let version = missing("protocolVersion", "a string");
        let level = missing("logLevel", levels);
        let no_object = r#"VERSION:"2026-07-28",CAPABILITIES:[]"#;
        // The version comes first; a version of any type makes the request modern. Wrong `_meta` before a wrong version
        // before an unknown method.
        for (expected, method, meta) in [
            (&capabilities, "tools/list", r#"VERSION:"2026-07-28""#),
            (&capabilities, "tools/list", no_object),
            (&version, "tools/list", "VERSION:null,CAPABILITIES:{}"),
            (&version, "server/discover", ""),
            (&version, "server/discover", "CAPABILITIES:{}"),
            (&capabilities, "no/such", r#"VERSION:"2099-01-01""#),
            (&level, "tools/list", r#"ENVELOPE,LEVEL:"loud""#),
            (&level, "tools/list", "ENVELOPE,LEVEL:3"),
        ] {
            let meta = meta
                .replace("VERSION", &format!("\"{VERSION}\""))
                .replace("CAPABILITIES", &format!("\"{CAPABILITIES}\""))
                .replace("LEVEL", r#""io.modelcontextprotocol/logLevel""#)
                .replace("ENVELOPE", &envelope);
            let found = pipe.say(&with_meta(method, &meta));
            assert_eq!(found, *expected, "{method} {meta}");
        }
        // `clientInfo` is optional and may be anything; unknown keys are ignored.
        for more in [
            "",
            r#","io.modelcontextprotocol/clientInfo":5"#,
            r#","io.modelcontextprotocol/logLevel":"debug""#,
        ] {
            let text = format!("{envelope}{more}");
            let answer = pipe.say(&with_meta("resources/templates/list", &text));
            let start = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","#;
            assert!(answer.starts_with(start), "{answer}");
        }
    }
}

#[test]
fn an_unsupported_version_gets_the_supported_ones() {
    let all = r#"["2024-11-05","2025-03-26","2025-06-18","2025-11-25","2026-07-28"]"#;
    let words = "This protocol version is not supported in params._meta: use one of those in \"supported\". Before 2026-07-28, a client begins with initialize.";
    let methods = "tools/list server/discover ping initialize no/such subscriptions/listen";
    for method in methods.split(' ') {
        for (version, supported) in [
            ("2099-01-01", all),
            ("", all),
            ("draft", all),
            ("2024-11-05", r#"["2026-07-28"]"#),
            ("2025-11-25", r#"["2026-07-28"]"#),
        ] {
            let text = format!(r#""{VERSION}":"{version}","{CAPABILITIES}":{{}}"#);
            let line = with_meta(method, &text);
            let more = format!(r#""requested":"{version}","supported":{supported},"#);
            let expected = error_with(ID, -32022, words, &more);
            assert_eq!(TestClient::new().say(&line), expected, "{method} {version}");
        }
    }
}

#[test]
fn eras_mix_on_one_pipe_in_every_order() {
    let modern = request_in(Revision::R2026_07_28, "resources/templates/list", "");
    let legacy = request("resources/templates/list");
    let refused = TestClient::new().say(&legacy);
    assert!(refused.contains(r#""code":-32602"#));
    let modern_answer = TestClient::new().say(&modern);
    for first in Revision::ALL.into_iter().filter(|r| r.is_legacy()) {
        let pipe = TestClient::new();
        assert_eq!(pipe.say(&modern), modern_answer);
        assert_eq!(pipe.say(&legacy), refused, "a modern request opens nothing");
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{}"}}}}"#,
            first.name()
        );
        assert!(pipe.say(&initialize).contains(first.name()));
        let own = pipe.say(&legacy);
        assert_eq!(own, TestClient::speaking(first).say(&legacy));
        let found = pipe.say(&modern);
        assert_eq!(found, modern_answer, "the handshake does not colour it");
        assert_eq!(pipe.say("{"), TestClient::speaking(first).say("{"));
        assert_eq!(pipe.say(&legacy), own, "nor does it the other way round");
        let text = format!(r#""{VERSION}":"2026-07-28","{CAPABILITIES}":{{}}"#);
        let inside = with_meta("initialize", &text);
        let expected = error(ID, -32601, "There is no method \"initialize\" here.");
        assert_eq!(pipe.say(&inside), expected);
        assert_eq!(pipe.session.revision(), Some(first));
    }
}

#[test]
fn the_header_decides_the_era_without_an_envelope() {
    let pipe = TestClient::of(Session::default());
    let mirror = |_: &str| None;
    let no_version = missing("protocolVersion", "a string");
    assert_eq!(pipe.post(&request("tools/list"), true, &mirror), no_version);
    assert_eq!(pipe.post(&request("ping"), true, &mirror), no_version);
    // `initialize` without an envelope is legacy, whatever the header says.
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    assert!(
        pipe.post(initialize, true, &mirror)
            .contains(r#""protocolVersion":"2025-06-18""#)
    );
    let list = &*request("tools/list");
    let discover = &*request("server/discover");
    let inside = &*request_in(Revision::R2026_07_28, "initialize", "");
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for (line, header, modern, opens) in [
        (list, false, false, false),
        (list, true, true, false),
        (discover, false, true, false),
        (initialize, true, false, true),
        (inside, false, true, false),
        (initialized, true, true, false),
        ("{", true, true, false),
        ("{", false, false, false),
    ] {
        let inbound = Inbound::read(line.as_bytes(), header);
        let found = (inbound.modern, inbound.initialize);
        assert_eq!(found, (modern, opens), "{line}");
    }
}

#[test]
fn headers_must_match_the_body() {
    let pipe = TestClient::of(Session::default());
    let mirror = |version, method, name| {
        move |header: &str| {
            let value: Option<&'static str> = match header {
                "MCP-Protocol-Version" => version,
                "Mcp-Method" => method,
                _ => name,
            };
            value.map(Cow::Borrowed)
        }
    };
    let newest = Some("2026-07-28");
    let post = |method: &str, params: &str, mirror: &RequestHeaders<'_>| {
        pipe.post(
            &request_in(Revision::R2026_07_28, method, params),
            true,
            mirror,
        )
    };
    let differs = |header: &str, body: &str| {
        let detail = format!("The header {header} must repeat the body's {body}.");
        error(ID, -32020, &detail)
    };
    let list = "resources/templates/list";
    let (version, protocol) = ("MCP-Protocol-Version", "protocol version");
    assert!(post(list, "", &mirror(newest, Some(list), None)).contains("result"));
    for (given, method, answer) in [
        (None, Some(list), differs(version, protocol)),
        (Some("2025-11-25"), Some(list), differs(version, protocol)),
        (newest, None, differs("Mcp-Method", "method")),
        (newest, Some("Tools/List"), differs("Mcp-Method", "method")),
    ] {
        assert_eq!(post(list, "", &mirror(given, method, None)), answer);
    }
    // Headers are checked before the method, also for an unknown one.
    let found = post("no/such", "", &mirror(newest, Some(list), None));
    assert_eq!(found, differs("Mcp-Method", "method"));
    for (method, field, value) in [
        ("tools/call", "name", "fabric_list_models"),
        ("prompts/get", "name", "summarize"),
        ("resources/read", "uri", "fabric://pattern/summarize"),
    ] {
        let (params, body) = (format!(r#""{field}":"{value}""#), format!("params.{field}"));
        for (name, answer) in [
            (Some(value), "call 1".to_owned()),
            (None, differs("Mcp-Name", &body)),
            (Some("x"), differs("Mcp-Name", &body)),
            (Some("=?base64?!?="), differs("Mcp-Name", &body)),
        ] {
            let mirror = mirror(newest, Some(method), name);
            assert_eq!(post(method, &params, &mirror), answer);
        }
        // Without a name in the body there is nothing to compare: the method reports what it needs.
        assert!(post(method, "", &mirror(newest, Some(method), None)).contains(r#""code":-32602"#));
    }
    // Only three methods have a name.
    assert!(post(list, "", &mirror(newest, Some(list), Some("x"))).contains("result"));
}
