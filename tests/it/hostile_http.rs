//! Many hostile messages in HTTP bodies, with an oracle: invalid JSON is 400 and -32700; a readable id is answered
//! exactly once; a message without an id is accepted, or refused without one; and the connection stays usable.

use serde_json::{Value, json};

use crate::hostile::Generator;
use crate::support::fabric::FakeFabric;
use crate::support::http::Http;
use crate::support::reply::Reply;
use crate::support::rng::cases;
use crate::support::stdio::with_meta;
use crate::support::web::{Streamable, messages};
use crate::support::{Era, LEGACY};

/// The id that must be answered: a string or an integer within range, of a message with the form of a request.
fn id_of(message: &Value) -> Option<&Value> {
    let id = message.get("id")?;
    let readable = id.is_string() || id.is_i64() || id.is_u64();
    (readable && message["method"].is_string() && message["jsonrpc"] == "2.0").then_some(id)
}

fn check(http: &mut Http, client: &Streamable, bytes: &[u8]) {
    // A byte order mark is ignored.
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let sent = serde_json::from_slice::<Value>(text).ok();
    let headers = client.headers(sent.as_ref().unwrap_or(&Value::Null));
    let mut all = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    // A header cannot carry every method name: it is then omitted, which is another error.
    let sound = |value: &str| value.bytes().all(|b| (0x20..0x7f).contains(&b));
    all.extend(
        headers
            .iter()
            .filter(|(_, value)| sound(value))
            .map(|(name, value)| (*name, value.as_str())),
    );
    let answer = http.request("POST", &client.server.path, &all, Some(bytes));
    let shown = format!(
        "{:?}: {} {}",
        String::from_utf8_lossy(bytes),
        answer.status,
        answer.text()
    );
    assert!([200, 202, 400, 404].contains(&answer.status), "{shown}");
    assert_eq!(answer.status == 202, answer.body.is_empty(), "{shown}");
    let said = messages(&answer);
    assert!(
        said.iter()
            .all(|message| message["jsonrpc"] == "2.0" || message.is_array()),
        "{shown}"
    );
    let Some(sent) = sent else {
        assert_eq!(
            (answer.status, &said[0]["error"]["code"]),
            (400, &json!(-32700)),
            "{shown}"
        );
        return;
    };
    if let Some(id) = id_of(&sent) {
        let answers = said
            .iter()
            .filter(|message| message.get("id") == Some(id))
            .count();
        assert_eq!(answers, 1, "{shown}");
    } else if sent.is_object()
        && sent.get("id").is_none()
        && sent["method"].is_string()
        && sent["jsonrpc"] == "2.0"
    {
        assert!(
            said.iter().all(|message| message.get("id").is_none()),
            "{shown}"
        );
    }
}

#[test]
fn hostile_bodies_are_answered_once_each_and_never_end_the_connection() {
    let fabric = FakeFabric::start();
    let mut modern = Streamable::ready(&fabric, Era::Modern);
    let mut legacy = Streamable::to(&modern.server, Era::Legacy(LEGACY[3]), None);
    let mut http = modern.server.connect();
    cases(1500, |rng, _| {
        let is_modern = rng.one_in(2);
        let bytes = Generator::new(rng.clone()).body(is_modern);
        check(&mut http, if is_modern { &modern } else { &legacy }, &bytes);
    });
    assert_eq!(legacy.request("ping", json!({}))["result"], json!({}));
    assert!(modern.request("tools/list", json!({}))["result"].is_object());
    assert!(
        !modern.server.process.stderr().contains("panic"),
        "{}",
        modern.server.process.stderr()
    );
}

/// Lists around serde_json's private name for raw values, around more of these as text. As one value it is `levels`
/// times as deep as the depth limit.
fn nested_raw_values(levels: usize) -> String {
    let escaped = |text: &str| text.replace('\\', "\\u005c").replace('"', "\\u0022");
    (0..levels).fold("1".to_owned(), |inner, _| {
        let (open, close) = ("[".repeat(100), "]".repeat(100));
        format!(
            r#"{open}{{"$serde_json::private::RawValue":"{}"}}{close}"#,
            escaped(&inner)
        )
    })
}

#[test]
fn values_nested_in_raw_values_do_not_overflow_the_stack() {
    let fabric = FakeFabric::start();
    let deep = nested_raw_values(400);
    let config = format!(r#"{{"openai":{deep}}}"#);
    fabric.on("GET /config", Reply::new(200, "application/json", config));
    let mut client = Streamable::ready(&fabric, Era::Modern);
    // As text: `Value` interprets the raw values in it.
    let call = |tool: &str, arguments: Value| {
        let params = with_meta(json!({"name": tool, "arguments": arguments}));
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = client.headers(&message);
        let mut all = vec![("Content-Type", "application/json")];
        all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
        let message = message.to_string().replace("\"DEEP\"", &deep);
        client
            .server
            .connect()
            .request("POST", &client.server.path, &all, Some(message.as_bytes()))
            .text()
    };
    let text = call("fabric_list_patterns", json!({"query": "DEEP"}));
    assert!(
        text.contains("`query` must be a string, not a list"),
        "{text}"
    );
    let text = call("fabric_get_configuration", json!({}));
    assert!(
        text.contains("[REDACTED_BY_MCP_SERVER]") && text.contains("\"isError\":false"),
        "{text}"
    );
    assert!(client.request("tools/list", json!({}))["result"].is_object());
}
