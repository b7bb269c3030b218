//! Runs as MCP tasks, in both eras.

use serde_json::{Value, json};

use crate::support::expect::{self, contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, with_meta};
use crate::support::transports::{self, Wire};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, Era, extended, poll};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn run(more: Value) -> Value {
    let arguments = json!({"pattern_name": "summarize", "input_text": "in"});
    let params = json!({"name": "fabric_run_pattern", "arguments": arguments});
    extended(params, more)
}

/// Params of a caller that supports tasks.
pub(crate) fn knowing(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(Era::MODERN.name());
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {EXTENSION: {}}});
    with_meta(params)
}

/// Checks the members of every task, whose times and ids vary; returns its id.
#[track_caller]
fn task(found: &Value, message: &str, suffix: &str) -> String {
    let id = found["taskId"].as_str();
    let id = id.unwrap_or_else(|| panic!("no task: {found}")).to_owned();
    let said = message.strip_prefix("summarize: ").unwrap();
    let mut expected = json!({
        "taskId": id, "status": said.split(',').next(), "statusMessage": message,
        "createdAt": found["createdAt"], "lastUpdatedAt": found["lastUpdatedAt"],
    });
    expected[format!("ttl{suffix}")] = json!(3_600_000);
    expected[format!("pollInterval{suffix}")] = json!(1_000);
    let mut bare = found.clone();
    for other in ["_meta", "resultType", "result"] {
        bare.as_object_mut().unwrap().remove(other);
    }
    assert_eq!(bare, expected);
    let created = found["createdAt"].as_str().unwrap();
    assert!(created.len() == 24 && created.ends_with('Z'), "{found}");
    id
}

/// The task once it has ended.
fn ended(client: &mut dyn Caller, about: &Value) -> Value {
    let ended = poll(DEADLINE, || {
        let got = client.ask("tasks/get", about.clone())["result"].take();
        (got["status"] != "working").then_some(got)
    });
    ended.expect("the end")
}

#[test]
fn a_modern_caller_that_supports_tasks_gets_one() {
    for wire in [Wire::Stdio, Wire::Streamable, Wire::Sse] {
        let fabric = FakeFabric::start();
        fabric.on_run(Reply::gated(&["part ", "rest"]));
        let program = Program::with(&fabric).flags("--task-after 2 --answer-within 1000");
        let mut client = transports::open(wire, Era::MODERN, program, None);
        let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
        assert_eq!(created["resultType"], "task", "{wire:?} {created}");
        let working = "summarize: working, 5 characters so far";
        let id = task(&created, working, "Ms");
        let about = knowing(json!({"taskId": id}));
        let got = client.ask("tasks/get", about.clone())["result"].take();
        assert_eq!(got["resultType"], "complete", "{got}");
        task(&got, working, "Ms");
        fabric.release();
        let done = ended(client.as_mut(), &about);
        task(&done, "summarize: completed, 9 characters", "Ms");
        let result = json!({"resultType": "complete", "isError": false, "structuredContent": {"run_id": id}});
        includes(&done["result"], result);
        let text = json!([{"type": "text", "text": "part rest"}]);
        assert_eq!(done["result"]["content"], text);
        let update = extended(about.clone(), json!({"inputResponses": {"never": "asked"}}));
        for (method, params) in [("tasks/cancel", about), ("tasks/update", update)] {
            let ack = client.ask(method, params)["result"].take();
            let members: Vec<_> = ack.as_object().unwrap().keys().collect();
            assert_eq!(members, ["_meta", "resultType"], "{ack}");
        }
        fabric.expect_chats(1);
    }
}

#[test]
fn a_modern_task_can_be_stopped_and_a_failed_run_is_a_completed_task() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--task-after 0 --max-runs 1");
    let mut client = Stdio::speaking(Era::MODERN, program);
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
    let about = knowing(json!({"taskId": created["taskId"]}));
    fabric.wait_held(1);
    // Another one waits for its place, and then gets its task.
    fabric.on_run(Reply::sse().content("half").gate().error("no more"));
    let next = client.begin("tools/call", knowing(run(json!({}))));
    client.ask("tasks/cancel", about.clone());
    let got = client.ask("tasks/get", about)["result"].take();
    let cancelled = json!({"status": "cancelled", "result": null, "error": null});
    includes(&got, cancelled);
    fabric.wait_closed(DEADLINE);

    let created = client.answer(&next)["result"].take();
    fabric.wait_held(1);
    fabric.release();
    let about = knowing(json!({"taskId": created["taskId"]}));
    let got = ended(&mut client, &about);
    assert_eq!(got["status"], "completed", "{got}");
    expect::failure(Era::MODERN, &got["result"], "fabric-api-error");
    assert_eq!(expect::partial(&got["result"]), "half", "{got}");
}

#[test]
fn a_subscriber_is_notified_of_the_end_of_its_tasks() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["part ", "rest"]));
    let mut client = Stdio::speaking(Era::MODERN, Program::with(&fabric).flags("--task-after 0"));
    let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
    let id = created["taskId"].as_str().unwrap();
    let unknown = "run_00000000000000000000000000000000";
    let filter = json!({"notifications": {"taskIds": [id, unknown, id]}});
    client.begin("subscriptions/listen", knowing(filter.clone()));
    let acknowledged = client.next_note()["params"]["notifications"].take();
    assert_eq!(acknowledged, json!({"taskIds": [id]}), "what is there");
    fabric.wait_held(1);
    fabric.release();
    let note = client.next_note();
    assert_eq!(note["method"], "notifications/tasks", "{note}");
    task(&note["params"], "summarize: completed, 9 characters", "Ms");
    assert_eq!(note["params"]["result"]["content"][0]["text"], "part rest");
    let subscription = &note["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    assert!(subscription.is_i64(), "{note}");
    let many = knowing(json!({"notifications": {"taskIds": vec![id; 65]}}));
    let codes =
        [filter, many].map(|params| client.error("subscriptions/listen", params)["code"].take());
    assert_eq!(codes, [-32021, -32602]);
}

#[test]
fn who_has_not_declared_tasks_gets_none_and_may_not_ask_for_them() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["whole"]));
    let program = Program::with(&fabric).flags("--task-after 0");
    let server = transports::serve(Wire::Streamable, program);
    let mut client = Streamable::to(&server, Era::MODERN, None);
    // A member of legacy tasks is ignored.
    let result = client.request("tools/call", run(json!({"task": {"ttl": 5}})))["result"].take();
    assert_eq!(result["resultType"], "complete", "{result}");
    assert_eq!(result["content"][0]["text"], "whole", "{result}");
    let id = result["structuredContent"]["run_id"].clone();
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let message = client.message(method, params.clone());
        let answer = client.post(&message);
        let error = &answer.expect_status(400).json()["error"];
        assert_eq!(error["code"], -32021, "{error}");
        let required = json!({"extensions": {EXTENSION: {}}});
        assert_eq!(error["data"]["requiredCapabilities"], required);
        // The header must repeat the id.
        let mut message = client.message(method, knowing(params));
        message["params"]["taskId"] = json!("run_00000000000000000000000000000000");
        let headers = [
            ("MCP-Protocol-Version", Era::MODERN.name()),
            ("Mcp-Method", method),
            ("Mcp-Name", "other"),
        ];
        let answer = server.post(&headers, &message);
        let error = &answer.expect_status(400).json()["error"];
        assert_eq!(error["code"], -32020, "{error}");
        let error = client.request(method, message["params"].clone())["error"].take();
        assert_eq!(error["code"], -32602, "unknown: {error}");
    }
}

#[test]
fn a_legacy_caller_asks_for_a_task_and_waits_for_its_result() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["part ", "rest"]));
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let mut params = run(json!({"task": {"ttl": 9_999_999}, "_meta": {"progressToken": "t"}}));
    params["arguments"]["stream"] = json!(true);
    let created = client.result("tools/call", params);
    let begun = "summarize: working, 0 characters so far";
    let about = json!({"taskId": task(&created["task"], begun, "")});
    assert_eq!(created.as_object().unwrap().len(), 1, "{created}");
    // Progress continues, and names its task.
    let related = json!({"io.modelcontextprotocol/related-task": about});
    let note = client.next_note();
    assert_eq!(note["params"]["message"], "part ", "{note}");
    assert_eq!(note["params"]["_meta"], related, "{note}");
    let wait = client.begin("tasks/result", about.clone());
    let got = client.result("tasks/get", about.clone());
    task(&got, "summarize: working, 5 characters so far", "");
    let listed = client.result("tasks/list", json!({}));
    assert_eq!(listed["tasks"], json!([got]));
    fabric.release();
    let result = client.answer(&wait)["result"].take();
    let text = json!([{"type": "text", "text": "part rest"}]);
    assert_eq!(result["content"], text, "{result}");
    includes(&result["_meta"], related);
    let note = poll(DEADLINE, || {
        let note = client.next_note();
        (note["method"] == "notifications/tasks/status").then_some(note)
    });
    let ended = &note.unwrap()["params"];
    task(ended, "summarize: completed, 9 characters", "");
    for (method, params) in [
        // It is over.
        ("tasks/cancel", about),
        ("tasks/get", json!({"taskId": "nope"})),
        ("tasks/list", json!({"cursor": "nope"})),
        ("tasks/get", json!({})),
    ] {
        assert_eq!(client.error(method, params)["code"], -32602, "{method}");
    }
    // No task is made, so the answer has none: it is an error.
    let wrong = run(json!({"task": {}, "arguments": {"x": 1}}));
    assert_eq!(client.error("tools/call", wrong)["code"], -32602);
}

#[test]
fn a_legacy_task_is_cancelled_before_the_answer_and_stays_so() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, Program::with(&fabric));
    let created = client.result("tools/call", run(json!({"task": {}})));
    let about = json!({"taskId": created["task"]["taskId"]});
    fabric.wait_held(1);
    for method in ["tasks/cancel", "tasks/get"] {
        let got = client.result(method, about.clone());
        assert_eq!(got["status"], "cancelled", "{method}: {got}");
    }
    expect::error_object(&client.result("tasks/result", about)["_meta"]["error"]);
    fabric.wait_closed(DEADLINE);

    fabric.on_run(Reply::sse().error("no"));
    let created = client.result("tools/call", run(json!({"task": {"ttl": 60_000}})));
    assert_eq!(created["task"]["ttl"], 60_000);
    let about = json!({"taskId": created["task"]["taskId"]});
    let result = client.result("tasks/result", about.clone());
    assert_eq!(result["isError"], true);
    assert_eq!(client.result("tasks/get", about)["status"], "failed");
}

#[test]
fn without_runs_to_keep_there_are_no_tasks_and_without_a_login_no_list() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::start(Program::with(&fabric).flags("--keep-runs 0"));
    let welcome = client.initialize(Era::R2025_11_25).to_string();
    contains(&welcome, ["tools"]);
    assert!(!welcome.contains("tasks"), "{welcome}");
    let result = client.result("tools/call", run(json!({"task": {}})));
    assert_eq!(result["isError"], false, "{result}");
    for (method, params) in [
        ("tasks/list", json!({})),
        ("tasks/get", json!({"taskId": "x"})),
    ] {
        assert_eq!(client.error(method, params)["code"], -32601, "{method}");
    }
    let discovered = client.modern("server/discover", json!({}));
    assert!(!discovered.to_string().contains(EXTENSION), "{discovered}");

    let program = Program::with(&fabric).flags("--max-calls-per-minute 1");
    let server = transports::serve(Wire::Streamable, program);
    let mut client = Streamable::to(&server, Era::NEWEST_LEGACY, None);
    let list = client.request("tasks/list", json!({}));
    assert_eq!(list["error"]["code"], -32601);
    let created = client.request("tools/call", run(json!({"task": {}})))["result"].take();
    let about = json!({"taskId": created["task"]["taskId"]});
    let result = client.request("tasks/result", about)["result"].take();
    assert_eq!(result["isError"], false, "{result}");
    let again = client.request("tools/call", run(json!({"task": {}})));
    assert_eq!(again["error"]["code"], -32603, "none was begun: {again}");
}
