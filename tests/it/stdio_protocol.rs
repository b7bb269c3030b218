//! The protocol on stdio: lifecycle, both eras in one process, features by revision, ids and batches.

use serde_json::{Value, json};

use crate::support::expect::{self, modern_result};
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, initialize_params, modern_meta};
use crate::support::{ERAS, Era, LEGACY, MODERN};

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

fn start() -> (FakeFabric, Stdio) {
    let fabric = FakeFabric::start();
    let client = Stdio::start(Program::with(&fabric));
    (fabric, client)
}

#[test]
fn every_legacy_revision_is_echoed_and_told_only_what_it_knows() {
    for revision in LEGACY {
        let (_fabric, mut client) = start();
        let result = client.initialize(revision);
        assert_eq!(result["protocolVersion"], revision);
        let info = &result["serverInfo"];
        assert_eq!(info["name"], "fabric-mcp", "{result}");
        assert_eq!(info["version"], env!("CARGO_PKG_VERSION"), "{result}");
        assert!(
            result["capabilities"]["tools"].is_object()
                && result["capabilities"]["logging"].is_object(),
            "{result}"
        );
        assert!(
            result["instructions"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{result}"
        );
        if revision < "2025-06-18" {
            assert!(info.get("title").is_none(), "{revision}: {info}");
        }
        if revision < "2025-11-25" {
            for late in ["icons", "description", "websiteUrl"] {
                assert!(
                    info.get(late).is_none(),
                    "{revision} knows no {late}: {info}"
                );
            }
        }
        if revision < "2025-03-26" {
            assert!(
                result["capabilities"].get("completions").is_none(),
                "{revision}: {result}"
            );
        }
        modern_result(Era::Legacy(revision), &result);
        client.expect_nothing_else();
    }
}

#[test]
fn an_unknown_version_is_answered_with_the_newest_legacy_one() {
    for version in ["2026-07-28", "1999-01-01", "2024-11-06", "", "banana"] {
        let (_fabric, mut client) = start();
        let result = client.result("initialize", initialize_params(version));
        assert_eq!(
            result["protocolVersion"], "2025-11-25",
            "asked for {version:?}"
        );
    }
}

#[test]
fn initialize_needs_a_version() {
    let (_fabric, mut client) = start();
    for params in [
        Value::Null,
        json!({}),
        json!({"protocolVersion": 5}),
        json!({"protocolVersion": null}),
    ] {
        assert_eq!(
            client.error("initialize", params.clone())["code"],
            -32602,
            "{params}"
        );
    }
    assert_eq!(
        client.initialize("2025-06-18")["protocolVersion"],
        "2025-06-18"
    );
}

#[test]
fn before_initialize_only_ping_is_answered() {
    let (_fabric, mut client) = start();
    assert_eq!(client.result("ping", Value::Null), json!({}));
    assert_eq!(client.result("ping", json!({})), json!({}));
    for method in [
        "tools/list",
        "tools/call",
        "prompts/list",
        "logging/setLevel",
    ] {
        let error = client.error(method, json!({}));
        assert_eq!(error["code"], -32602, "{method}: {error}");
        assert!(
            error["message"].as_str().unwrap().contains("initialize"),
            "it must say what to do: {error}"
        );
    }
}

#[test]
fn requests_before_the_initialized_notification_are_served() {
    let (_fabric, mut client) = start();
    client.result("initialize", initialize_params("2025-06-18"));
    assert!(client.result("tools/list", Value::Null)["tools"].is_array());
}

#[test]
fn ids_are_echoed_with_their_type() {
    let (_fabric, mut client) = start();
    let ids = [
        json!(0),
        json!(-7),
        json!(9_007_199_254_740_991_i64),
        json!(""),
        json!("0"),
        json!("ä\n\"漢"),
    ];
    for id in ids {
        client.begin_as(&id, "ping", Value::Null);
        assert_eq!(
            client.recv(),
            json!({"jsonrpc": "2.0", "id": id, "result": {}})
        );
    }
}

#[test]
fn notifications_and_responses_are_never_answered() {
    let (_fabric, mut client) = start();
    client.initialize("2025-11-25");
    for method in [
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/unknown",
        "tools/list",
        "x",
    ] {
        client.send(&json!({"jsonrpc": "2.0", "method": method}));
        client.send(
            &json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": 4711, "a": [1]}}),
        );
    }
    client.send(&json!({"jsonrpc": "2.0", "id": 9, "result": {}}));
    client.send(&json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -1, "message": "no"}}));
    client.expect_nothing_else();
}

#[test]
fn a_second_initialize_renegotiates() {
    let (_fabric, mut client) = start();
    client.initialize("2024-11-05");
    assert!(
        client.result("tools/list", Value::Null)["tools"][0]
            .get("outputSchema")
            .is_none()
    );
    client.initialize("2025-06-18");
    assert!(client.result("tools/list", Value::Null)["tools"][0]["outputSchema"].is_object());
    client.initialize("2024-11-05");
    assert!(
        client.result("tools/list", Value::Null)["tools"][0]
            .get("outputSchema")
            .is_none()
    );
}

#[test]
fn the_log_level_is_set_in_legacy_only() {
    for revision in LEGACY {
        let (_fabric, mut client) = start();
        client.initialize(revision);
        for level in [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ] {
            assert_eq!(
                client.result("logging/setLevel", json!({"level": level})),
                json!({}),
                "{revision} {level}"
            );
        }
        for bad in [
            json!({"level": "loud"}),
            json!({"level": 3}),
            json!({}),
            json!({"level": ""}),
        ] {
            assert_eq!(
                client.error("logging/setLevel", bad.clone())["code"],
                -32602,
                "{revision} {bad}"
            );
        }
    }
}

#[test]
fn discover_tells_everything_a_modern_client_needs() {
    let (_fabric, mut client) = start();
    let answer = client.modern("server/discover", Value::Null);
    let result = &answer["result"];
    let mut versions: Vec<&str> = result["supportedVersions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect();
    versions.sort_unstable();
    assert_eq!(
        versions,
        [LEGACY[0], LEGACY[1], LEGACY[2], LEGACY[3], MODERN],
        "{answer}"
    );
    assert!(
        result["capabilities"]["tools"].is_object()
            && result["capabilities"]["logging"].is_object(),
        "{answer}"
    );
    assert!(result["instructions"].is_string(), "{answer}");
    cache_hints(result);
    modern_result(Era::Modern, result);
}

fn cache_hints(result: &Value) {
    assert!(
        result["ttlMs"].as_i64().is_some_and(|ttl| ttl >= 0),
        "ttlMs: {result}"
    );
    assert!(
        matches!(result["cacheScope"].as_str(), Some("public" | "private")),
        "cacheScope: {result}"
    );
}

#[test]
fn tools_are_listed_as_each_revision_knows_them() {
    let mut orders = Vec::new();
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let result = client.result("tools/list", Value::Null);
        modern_result(era, &result);
        if era == Era::Modern {
            cache_hints(&result);
        } else {
            assert!(
                result.get("ttlMs").is_none() && result.get("cacheScope").is_none(),
                "{era:?}: {result}"
            );
        }
        let tools = result["tools"].as_array().unwrap();
        for tool in tools {
            assert_eq!(
                tool.get("annotations").is_some(),
                era.from("2025-03-26"),
                "annotations, {era:?}: {tool}"
            );
            assert_eq!(
                tool.get("title").is_some(),
                era.from("2025-06-18"),
                "title, {era:?}: {tool}"
            );
            assert_eq!(
                tool.get("outputSchema").is_some(),
                era.from("2025-06-18"),
                "outputSchema, {era:?}: {tool}"
            );
            assert!(
                era.from("2025-11-25") || tool.get("icons").is_none(),
                "icons, {era:?}: {tool}"
            );
            assert!(
                tool["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 20),
                "{tool}"
            );
        }
        orders.push(
            tools
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        );
    }
    assert!(
        orders.windows(2).all(|pair| pair[0] == pair[1]),
        "the order never changes: {orders:?}"
    );
}

#[test]
fn schemas_are_plain_and_annotations_true() {
    let (_fabric, mut client) = start();
    client.initialize("2025-11-25");
    let result = client.result("tools/list", Value::Null);
    let tools = result["tools"].as_array().unwrap();
    for tool in tools {
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            assert_eq!(schema["type"], "object", "{tool}");
            assert!(schema["properties"].is_object(), "{tool}");
            plain(schema);
        }
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        let runs = ["fabric_run_pattern", "fabric_cancel_run"]
            .map(Value::from)
            .contains(&tool["name"]);
        let notes = &tool["annotations"];
        assert_eq!(notes["readOnlyHint"], !runs, "{tool}");
        assert_eq!(notes["idempotentHint"], !runs, "{tool}");
        assert_eq!(notes["openWorldHint"], true, "{tool}");
    }
    let required = &tools[0]["inputSchema"]["required"];
    assert!(
        required.as_array().is_none_or(Vec::is_empty),
        "the first tool must accept {{}}: {}",
        tools[0]
    );
}

/// Schemas must not contain what strict clients reject.
fn plain(schema: &Value) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                assert!(
                    !matches!(name.as_str(), "$ref" | "$schema" | "anyOf" | "oneOf"),
                    "{name} in {schema}"
                );
                assert!(
                    name != "type" || value.is_string() || value.is_object(),
                    "a union of types in {schema}"
                );
                if name == "properties" {
                    let all = value.as_object().unwrap().values().all(Value::is_object);
                    assert!(all, "every property is a schema object: {schema}");
                }
                plain(value);
            }
        }
        Value::Array(items) => items.iter().for_each(plain),
        _ => {}
    }
}

#[test]
fn a_modern_request_needs_its_meta() {
    let (_fabric, mut client) = start();
    let list = |meta: Value| json!({"_meta": meta});
    let without_capabilities = list(json!({VERSION_KEY: MODERN}));
    let bad_capabilities = list(json!({VERSION_KEY: MODERN, CAPABILITIES_KEY: 5}));
    let bad_version = list(json!({VERSION_KEY: 20_260_728, CAPABILITIES_KEY: {}}));
    for params in [without_capabilities, bad_capabilities, bad_version] {
        assert_eq!(
            client.error("tools/list", params.clone())["code"],
            -32602,
            "{params}"
        );
    }
    // `clientInfo` is optional.
    let enough = list(json!({VERSION_KEY: MODERN, CAPABILITIES_KEY: {}}));
    assert!(client.result("tools/list", enough)["tools"].is_array());
    // The name `server/discover` makes a request modern.
    assert_eq!(client.error("server/discover", json!({}))["code"], -32602);
}

#[test]
fn an_unsupported_modern_version_gets_the_supported_ones() {
    let (_fabric, mut client) = start();
    let ask = |version: &str| json!({"_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}});
    let legacy = client.error("tools/list", ask("2025-11-25"));
    assert_eq!(
        (&legacy["code"], &legacy["data"]["supported"]),
        (&json!(-32022), &json!([MODERN])),
        "{legacy}"
    );
    assert_eq!(legacy["data"]["requested"], "2025-11-25");
    let unknown = client.error("tools/list", ask("2099-01-01"));
    assert_eq!(unknown["code"], -32022, "{unknown}");
    assert_eq!(
        unknown["data"]["supported"].as_array().map(Vec::len),
        Some(5),
        "{unknown}"
    );
    assert_eq!(unknown["data"]["requested"], "2099-01-01");
}

#[test]
fn removed_and_unknown_methods_are_not_found_in_a_modern_envelope() {
    let (_fabric, mut client) = start();
    let removed = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "no/such",
    ];
    for method in removed {
        assert_eq!(
            client.modern(method, json!({}))["error"]["code"],
            -32601,
            "{method}"
        );
    }
    client.initialize("2025-11-25");
    assert_eq!(client.error("no/such", json!({}))["code"], -32601);
}

#[test]
fn eras_mix_on_one_pipe_in_either_order() {
    let (_fabric, mut client) = start();
    assert!(client.modern("server/discover", Value::Null)["result"].is_object());
    client.initialize("2024-11-05");
    assert!(
        client.modern("tools/list", Value::Null)["result"]["tools"][0]["outputSchema"].is_object()
    );
    assert!(
        client.result("tools/list", Value::Null)["tools"][0]
            .get("outputSchema")
            .is_none()
    );
    let call = json!({"name": "fabric_list_patterns", "arguments": {}});
    expect::success(
        Era::Modern,
        &client.modern("tools/call", call.clone())["result"],
    );
    expect::success(
        Era::Legacy("2024-11-05"),
        &client.result("tools/call", call),
    );
    client.expect_nothing_else();
}

#[test]
fn the_modern_meta_of_one_request_opens_nothing() {
    let (_fabric, mut client) = start();
    assert!(client.modern("tools/list", Value::Null)["result"].is_object());
    assert_eq!(client.error("tools/list", Value::Null)["code"], -32602);
    let initialize = json!({"_meta": modern_meta(), "protocolVersion": "2025-11-25"});
    assert_eq!(client.error("initialize", initialize)["code"], -32601);
}

#[test]
fn an_id_in_flight_cannot_be_used_twice_and_can_be_used_again() {
    let (fabric, mut client) = start();
    client.initialize("2025-11-25");
    fabric.once(
        "POST /chat",
        Reply::sse().content("first").gate().complete(),
    );
    let run = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "x"}});
    let id = json!("twice");
    client.begin_as(&id, "tools/call", run.clone());
    fabric.wait_held(1);
    for (method, params) in [
        ("tools/call", run.clone()),
        ("ping", Value::Null),
        ("tools/list", Value::Null),
    ] {
        client.begin_as(&id, method, params);
        let refused = client.answer(&id);
        assert_eq!(refused["error"]["code"], -32600, "{method}: {refused}");
    }
    fabric.release();
    assert_eq!(client.answer(&id)["result"]["content"][0]["text"], "first");
    client.begin_as(&id, "tools/call", run);
    assert_eq!(
        client.answer(&id)["result"]["content"][0]["text"],
        "Ran ai on: x"
    );
    fabric.expect_chats(2);
}

#[test]
fn an_unknown_tool_is_a_bad_parameter_in_every_revision() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        for params in [
            json!({"name": "no_such_tool", "arguments": {}}),
            json!({"arguments": {}}),
            json!({"name": 5}),
        ] {
            let error = client.error("tools/call", params.clone());
            assert_eq!(error["code"], -32602, "{era:?} {params}: {error}");
        }
    }
}

#[test]
fn the_other_fields_of_a_call_are_taken_or_ignored() {
    let (_fabric, mut client) = start();
    client.initialize("2025-11-25");
    let with_task = json!({"name": "fabric_list_patterns", "task": {"ttl": 5}});
    assert_eq!(
        client.error("tools/call", with_task.clone())["code"],
        -32601,
        "only runs can be tasks"
    );
    assert_eq!(
        client.error(
            "tools/call",
            json!({"name": "fabric_list_patterns", "arguments": []})
        )["code"],
        -32602
    );
    client.initialize("2025-06-18");
    expect::success(
        Era::Legacy("2025-06-18"),
        &client.result("tools/call", with_task),
    );
}

#[test]
fn a_batch_is_answered_as_an_array_in_2025_03_26() {
    let (_fabric, mut client) = start();
    client.initialize("2025-03-26");
    client.send(&json!([
        {"jsonrpc": "2.0", "id": 10, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": {"name": "fabric_list_strategies"}},
        {"jsonrpc": "2.0", "id": 11, "method": "no/such"},
        7
    ]));
    let answer = client.recv();
    let items = answer
        .as_array()
        .unwrap_or_else(|| panic!("no array: {answer}"));
    assert_eq!(items.len(), 4, "{answer}");
    let of = |id: &Value| {
        items
            .iter()
            .find(|item| item.get("id") == Some(id))
            .unwrap_or_else(|| panic!("{id}: {answer}"))
    };
    assert_eq!(of(&json!(10))["result"], json!({}));
    assert_eq!(of(&json!("b"))["result"]["content"][0]["type"], "text");
    assert_eq!(of(&json!(11))["error"]["code"], -32601);
    assert!(
        items.iter().any(|item| item["error"]["code"] == -32600),
        "{answer}"
    );
    client.send(&json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]));
    client.expect_nothing_else();
    client.send(
        &json!([{"jsonrpc": "2.0", "id": 12, "method": "initialize", "params": initialize_params("2025-03-26")}]),
    );
    assert!(
        client.recv()[0]["error"]["code"].is_number(),
        "initialize is not allowed in a batch"
    );
}

#[test]
fn an_array_is_refused_in_every_other_revision() {
    for era in ERAS
        .into_iter()
        .filter(|era| era.revision() != "2025-03-26")
    {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        client.send(&json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]));
        assert_eq!(client.recv()["error"]["code"], -32600, "{era:?}");
        client.expect_nothing_else();
    }
}
