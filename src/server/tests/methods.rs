//! Every method in every revision.

use super::*;
use crate::sync::lock;

const USE_INITIALIZE: &str = "No version is agreed on yet: send initialize first, or put \
    io.modelcontextprotocol/protocolVersion (2026-07-28) and clientCapabilities into params._meta \
    of each request.";

fn not_found(method: &str) -> String {
    error(
        ID,
        -32601,
        &format!("There is no method \"{method}\" here."),
    )
}

#[test]
fn initialize_agrees_on_the_version_or_on_the_newest_legacy_one() {
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let version = format!(r#""protocolVersion":"{asked}""#);
        let line = request_in(Revision::R2024_11_05, "initialize", &version);
        let begin = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{agreed}","#);
        // On a pipe with another revision it renegotiates.
        for pipe in [
            TestClient::new(),
            TestClient::speaking(Revision::R2025_03_26),
        ] {
            assert!(pipe.say(&line).starts_with(&begin), "{asked:?}");
            assert_eq!(pipe.session.revision().map(Revision::name), Some(agreed));
        }
    }
}

#[test]
fn initialize_without_a_version_changes_nothing() {
    let pipe = TestClient::speaking(Revision::R2025_06_18);
    let words = "initialize needs params.protocolVersion, a string such as \"2025-11-25\".";
    for params in [
        "",
        r#""protocolVersion":5"#,
        r#""protocolVersion":null"#,
        r#""protocolVersion":["2025-11-25"]"#,
    ] {
        let line = request_in(Revision::R2025_06_18, "initialize", params);
        assert_eq!(pipe.say(&line), error(ID, -32602, words), "{params}");
    }
    assert_eq!(pipe.say(&request("initialize")), error(ID, -32602, words));
    assert_eq!(pipe.session.revision(), Some(Revision::R2025_06_18));
}

#[test]
fn before_any_handshake_only_ping_is_served() {
    let pipe = TestClient::new();
    let found = pipe.say(&request("ping"));
    assert_eq!(found, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let all = "tools/list tools/call prompts/list logging/setLevel subscriptions/listen no/such";
    for method in all.split(' ') {
        let found = pipe.say(&request(method));
        assert_eq!(found, error(ID, -32602, USE_INITIALIZE), "{method}");
    }
    assert_eq!(pipe.session.revision(), None);
}

#[test]
fn removed_and_unknown_methods_are_not_found() {
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        // The last one is empty.
        let always = "no/such resources/subscribe resources/unsubscribe notifications/initialized ";
        let gone = match revision {
            _ if !revision.is_legacy() => {
                "initialize ping logging/setLevel tasks/list tasks/result"
            }
            Revision::R2025_11_25 => "subscriptions/listen roots/list tasks/update",
            _ => {
                "subscriptions/listen roots/list tasks/update tasks/get tasks/cancel tasks/list tasks/result"
            }
        };
        for method in always.split(' ').chain(gone.split(' ')) {
            let found = pipe.say(&request_in(revision, method, ""));
            assert_eq!(found, not_found(method), "{revision:?}");
        }
    }
    // A method's name is shown shortened and without control characters.
    let text = format!("\\u001b[31m{}", "x".repeat(100));
    let long = request_in(Revision::R2025_11_25, &text, "");
    let found = TestClient::speaking(Revision::R2025_11_25).say(&long);
    assert_eq!(found, not_found(&format!("[31m{}", "x".repeat(60))));
}

#[test]
fn tools_are_listed_with_the_fields_each_revision_knows() {
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        let text = pipe.say(&request_in(revision, "tools/list", ""));
        let tail = match revision.is_legacy() {
            true => "]}}".to_string(),
            false => format!(
                r#"],"ttlMs":3600000,"cacheScope":"public","_meta":{{{}}}}}}}"#,
                server_info()
            ),
        };
        assert!(text.ends_with(&tail), "{revision:?}");
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields = match revision {
            Revision::R2024_11_05 => "description inputSchema name",
            Revision::R2025_03_26 => "annotations description inputSchema name",
            _ => "_meta annotations description inputSchema name outputSchema title",
        };
        for tool in list["result"]["tools"].as_array().unwrap() {
            let keys = tool.as_object().unwrap().keys();
            let mut found: Vec<_> = keys.map(String::as_str).collect();
            if revision == Revision::R2025_11_25 && tool["name"] == "fabric_run_pattern" {
                let optional = serde_json::json!({"taskSupport": "optional"});
                assert_eq!(tool["execution"], optional);
                found.retain(|field| *field != "execution");
            }
            assert_eq!(found.join(" "), fields, "{revision:?}");
        }
        let found = pipe.say(&request_in(revision, "tools/list", r#""cursor":null"#));
        assert_eq!(found, text, "the same each time");
    }
}

#[test]
fn made_up_cursors_are_refused_in_every_list() {
    let made_up =
        "\"cursor\" was not given by this server: leave it out to begin at the first page.";
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        let say = |method: &str, cursor: &str| {
            let cursor = format!(r#""cursor":{cursor}"#);
            pipe.say(&request_in(revision, method, &cursor))
        };
        for method in "tools/list resources/templates/list prompts/list resources/list".split(' ') {
            let number = say(method, "5");
            assert_eq!(number, error(ID, -32602, "\"cursor\" must be a string."));
            for page in "|page-0|page-01|page--1|page-18446744073709551615".split('|') {
                let refused = say(method, &format!("\"{page}\""));
                assert_eq!(refused, error(ID, -32602, made_up), "{method} {page}");
            }
        }
        let second = say("tools/list", "\"page-1\"");
        assert_eq!(second, error(ID, -32602, made_up), "there is one page");
    }
}

#[test]
fn templates_are_listed_in_full() {
    for revision in Revision::ALL {
        let title = |title: &str| match revision >= Revision::R2025_06_18 {
            true => format!(r#""title":"{title}","#),
            false => String::new(),
        };
        let templates = format!(
            r#""resourceTemplates":[{{"description":"The system prompt of a Fabric pattern.","mimeType":"text/markdown","name":"pattern",{}"uriTemplate":"fabric://pattern/{{name}}"}},{{"description":"The prompt of a Fabric strategy.","mimeType":"text/markdown","name":"strategy",{}"uriTemplate":"fabric://strategy/{{name}}"}}]"#,
            title("Fabric pattern"),
            title("Fabric strategy")
        );
        let fields = match revision.is_legacy() {
            true => templates,
            false => format!(r#"{templates},"ttlMs":3600000,"cacheScope":"public""#),
        };
        let answer = TestClient::speaking(revision).say(&request_in(
            revision,
            "resources/templates/list",
            "",
        ));
        assert_eq!(answer, result_in(revision, &fields));
    }
}

#[test]
fn an_unknown_tool_is_a_wrong_parameter_and_a_wrong_argument_is_not() {
    let malformed = "tools/call needs params.name, the name of a tool as a string, and params.arguments, an object.";
    let twice = "params hold an object with the same field twice.";
    let no_object = "params.arguments of tools/call must be an object.";
    let long = format!(r#""name":"{}""#, "x".repeat(4097));
    let tools = crate::tools::TOOLS
        .iter()
        .map(|tool| tool.name)
        .collect::<Vec<_>>()
        .join(", ");
    let unknown = format!("There is no tool \"nope\": the tools are {tools}.");
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        let say = |params: &str| pipe.say(&request_in(revision, "tools/call", params));
        for (params, words) in [
            ("", malformed),
            (r#""name":5"#, malformed),
            (r#""name":"a","name":"b""#, twice),
            (r#""name":"nope""#, &*unknown),
            (&long, r#""name" is longer than 4096 bytes, the limit."#),
            (r#""name":"fabric_list_patterns","arguments":[]"#, no_object),
        ] {
            assert_eq!(say(params), error(ID, -32602, words), "{params}");
        }
        let said = say(r#""name":"fabric_list_patterns","inputResponses":[]"#);
        let no_object = error(ID, -32602, "params.inputResponses must be an object.");
        assert_eq!(said == no_object, !revision.is_legacy(), "{said}");
        // Calls. `task` is ignored in revisions without core tasks, null arguments count as none, and a token may
        // be 0 or "".
        for params in [
            r#""name":"fabric_list_patterns""#,
            r#""name":"fabric_list_patterns","arguments":null"#,
            // Refused with all that is wrong once its names were looked up.
            r#""name":"fabric_run_pattern","arguments":{"pattern_name":5}"#,
            r#""name":"fabric_run_pattern","arguments":{"pattern_name":"x"}"#,
            r#""name":"fabric_run_pattern","arguments":{"pattern_name":"x"},"task":{"ttl":5}"#,
            r#""name":"fabric_run_pattern","arguments":{"pattern_name":"x"},"task":{}"#,
            r#""name":"fabric_run_pattern","arguments":{"pattern_name":"x"},"task":null"#,
        ] {
            assert_eq!(say(params), "call 1", "{revision:?} {params}");
        }
        let answered = |refusal: String| match revision {
            Revision::R2025_11_25 => refusal,
            _ => "call 1".to_owned(),
        };
        let other = say(r#""name":"fabric_list_patterns","arguments":{},"task":{"ttl":5}"#);
        let words = "fabric_list_patterns cannot be a task: call it without params.task.";
        assert_eq!(other, answered(error(ID, -32601, words)), "{revision:?}");
        for bad in ["5", r#"{"ttl":-1}"#, r#"{"ttl":1.5}"#] {
            let answer = say(&format!(
                r#""name":"fabric_run_pattern","arguments":{{"pattern_name":"x"}},"task":{bad}"#
            ));
            let words =
                "params.task must be an object, with ttl, if any, a whole number of milliseconds.";
            assert_eq!(answer, answered(error(ID, -32602, words)), "{bad}");
        }
    }
}

#[test]
fn a_progress_token_is_a_string_or_an_integer() {
    let words = "\"progressToken\" must be a string of at most 1024 bytes or a 64-bit integer.";
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        for (token, fine) in [
            ("0", true),
            ("\"\"", true),
            ("null", true),
            ("1.5", false),
            ("{}", false),
            ("true", false),
        ] {
            let token = format!(r#","progressToken":{token}"#);
            let meta = match revision.is_legacy() {
                true => format!(r#""_meta":{{"x":1{token}}}"#),
                false => envelope(revision, &token),
            };
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fabric_list_models",{meta}}}}}"#
            );
            let expected = match fine {
                true => "call 1".to_string(),
                false => error(ID, -32602, words),
            };
            assert_eq!(pipe.say(&line), expected, "{line}");
        }
    }
}

#[test]
fn prompts_resources_and_completion_check_their_params_before_any_call() {
    let get = "prompts/get needs params.name, a string, and params.arguments, an object whose values are strings.";
    let read = "resources/read needs params.uri, a string such as fabric://pattern/summarize.";
    let complete = "completion/complete needs params.ref ({\"type\": \"ref/prompt\", \"name\"} or \
        {\"type\": \"ref/resource\", \"uri\"}) and params.argument ({\"name\", \"value\"}, both \
        strings).";
    let reference = "params.ref must name a prompt (ref/prompt) or one of the templates \
        fabric://pattern/{name} and fabric://strategy/{name} (ref/resource).";
    let argument = "The templates have one argument: \"name\".";
    let cases = r#"
CALL prompts/list
CALL prompts/get "name":"summarize"
CALL prompts/get "name":"summarize","arguments":{"input_text":"x"}
GET prompts/get
GET prompts/get "name":null
GET prompts/get "name":"x","arguments":[]
GET prompts/get "name":"x","arguments":{"a":5}
CALL resources/list
CALL resources/read "uri":"fabric://pattern/summarize"
READ resources/read
READ resources/read "uri":[]
CALL completion/complete "ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""},"context":{}
CALL completion/complete "ref":PATTERN,"argument":{"name":"name","value":"s"}
COMPLETE completion/complete
COMPLETE completion/complete "ref":["ref/prompt","x"],"argument":{"name":"a","value":""}
COMPLETE completion/complete "ref":{"type":"ref/prompt","name":"x"},"argument":["a",""]
COMPLETE completion/complete "ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":5}
REFERENCE completion/complete "ref":{"type":"ref/tool","name":"x"},"argument":{"name":"a","value":""}
REFERENCE completion/complete "ref":{"type":"ref/resource","uri":"file:///x"},"argument":{"name":"name","value":""}
ARGUMENT completion/complete "ref":PATTERN,"argument":{"name":"x","value":""}
"#;
    let pattern = r#"{"type":"ref/resource","uri":"fabric://pattern/{name}"}"#;
    let cases = cases.replace("PATTERN", pattern);
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        for case in cases.trim().lines() {
            let mut parts = case.splitn(3, ' ');
            let expected = match parts.next().unwrap() {
                "GET" => error(ID, -32602, get),
                "READ" => error(ID, -32602, read),
                "COMPLETE" => error(ID, -32602, complete),
                "REFERENCE" => error(ID, -32602, reference),
                "ARGUMENT" => error(ID, -32602, argument),
                _ => "call 1".to_owned(),
            };
            let (method, params) = (parts.next().unwrap(), parts.next().unwrap_or_default());
            let said = pipe.say(&request_in(revision, method, params));
            assert_eq!(said, expected, "{revision:?} {case}");
        }
        assert!(
            pipe.say(&request_in(revision, "prompts/get", r#""name":"../x""#))
                .contains(r#""code":-32602"#)
        );
    }
}

#[test]
fn a_resource_that_cannot_be_ours_is_not_found_under_the_code_of_the_revision() {
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        let code = if revision.is_legacy() { -32002 } else { -32602 };
        let uri = "fabric://pattern/..%2Fx";
        let params = format!(r#""uri":"{uri}""#);
        let detail = format!(
            r#"There is no resource \"{uri}\". Resources are fabric://pattern/{{name}} and fabric://strategy/{{name}}."#
        );
        let expected = format!(
            r##"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"{detail}","data":{{"detail":"{detail}","request_id":"#","title":"No such pattern","type":"urn:fabric-mcp:error:pattern-not-found","uri":"{uri}"}}}}}}"##
        );
        let said = pipe.say(&request_in(revision, "resources/read", &params));
        assert_eq!(said, expected);
    }
}

#[test]
fn the_log_level_belongs_to_the_legacy_connection() {
    let words = "logging/setLevel needs params.level: debug, info, notice, warning, error, critical, alert or emergency.";
    for revision in Revision::ALL.into_iter().filter(|r| r.is_legacy()) {
        let pipe = TestClient::speaking(revision);
        assert_eq!(*lock(&pipe.session.level), None);
        for level in "debug info notice warning error critical alert emergency".split(' ') {
            let text = format!(r#""level":"{level}""#);
            let line = request_in(revision, "logging/setLevel", &text);
            assert_eq!(pipe.say(&line), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
            assert_eq!(lock(&pipe.session.level).map(Level::name), Some(level));
        }
        for bad in [
            "",
            r#""level":"loud""#,
            r#""level":"Info""#,
            r#""level":3"#,
            r#""level":null"#,
        ] {
            let line = request_in(revision, "logging/setLevel", bad);
            assert_eq!(pipe.say(&line), error(ID, -32602, words), "{bad}");
        }
        let found = lock(&pipe.session.level).map(Level::name);
        assert_eq!(found, Some("emergency"), "a refused level changes nothing");
    }
}

#[test]
fn subscriptions_are_acknowledged_with_the_supported_kinds() {
    let usage = "subscriptions/listen needs params.notifications, an object such as \
        {\"promptsListChanged\": true}, with true or false as values.";
    let pipe = TestClient::new();
    let say = |params: &str| {
        pipe.say(&request_in(
            Revision::R2026_07_28,
            "subscriptions/listen",
            params,
        ))
    };
    let acknowledged = |filter: &str| {
        format!(
            r#"listen 1 {{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":1}},"notifications":{{{filter}}}}}}}"#
        )
    };
    for case in [
        " => ",
        r#""promptsListChanged":true => "promptsListChanged":true"#,
        r#""promptsListChanged":false,"resourcesListChanged":true => "resourcesListChanged":true"#,
        r#""toolsListChanged":true,"resourceSubscriptions":["fabric://pattern/x"],"new":5 => "#,
    ] {
        let (asked, honoured) = case.split_once(" => ").expect("two parts");
        let found = say(&format!(r#""notifications":{{{asked}}}"#));
        assert_eq!(found, acknowledged(honoured), "{asked}");
    }
    for bad in [
        "",
        r#""notifications":null"#,
        r#""notifications":[true]"#,
        r#""notifications":{"promptsListChanged":"yes"}"#,
    ] {
        assert_eq!(say(bad), error(ID, -32602, usage), "{bad}");
    }
}

#[test]
fn cancelling_takes_an_id_and_ignores_everything_else() {
    for revision in Revision::ALL {
        let pipe = TestClient::speaking(revision);
        let say = |params: &str| {
            pipe.say(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#
            ))
        };
        assert_eq!(say(r#"{"requestId":7,"reason":"x"}"#), "cancel 7");
        assert_eq!(say(r#"{"requestId":"a"}"#), r#"cancel "a""#);
        for ignored in [
            "{}",
            "[7]",
            "7",
            "null",
            r#"{"requestId":null}"#,
            r#"{"requestId":1.5}"#,
            r#"{"requestId":{}}"#,
        ] {
            assert_eq!(say(ignored), "-", "{ignored}");
        }
        let found = pipe.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
        assert_eq!(found, "-");
    }
}
