//! Runs as MCP tasks, in both eras.

use serde_json::{Value, json};

use crate::support::expect::includes;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, with_meta};
use crate::support::transports::{self, Wire};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, Era, MODERN, poll};

const NEWEST: Era = Era::Legacy("2025-11-25");
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn run(more: Value) -> Value {
    let mut params = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "summarize", "input_text": "in"}});
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    params
}

/// Params of a caller that supports tasks.
fn knowing(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {EXTENSION: {}}});
    with_meta(params)
}

/// Checks the members of every task, whose times and ids vary.
#[track_caller]
fn task(found: &Value, status: &str, message: &str, suffix: &str) -> String {
    let id = found["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {found}"))
        .to_owned();
    let mut expected = json!({
        "taskId": id, "status": status, "statusMessage": message,
        "createdAt": found["createdAt"], "lastUpdatedAt": found["lastUpdatedAt"],
    });
    expected[format!("ttl{suffix}")] = json!(3_600_000);
    expected[format!("pollInterval{suffix}")] = json!(1_000);
    let mut bare = found.clone();
    for other in ["_meta", "resultType", "result"] {
        bare.as_object_mut().unwrap().remove(other);
    }
    assert_eq!(bare, expected);
    assert!(
        found["createdAt"]
            .as_str()
            .is_some_and(|at| at.len() == 24 && at.ends_with('Z')),
        "{found}"
    );
    id
}

#[test]
fn a_modern_caller_that_supports_tasks_gets_one() {
    for wire in [Wire::Stdio, Wire::Streamable, Wire::Sse] {
        let fabric = FakeFabric::start();
        fabric.on_run(Reply::gated(&["part ", "rest"]));
        let mut client = transports::open(
            wire,
            Era::Modern,
            Program::with(&fabric).flags("--task-after 0.3"),
            None,
        );
        let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
        assert_eq!(created["resultType"], "task", "{wire:?} {created}");
        let id = task(
            &created,
            "working",
            "summarize: working, 5 characters so far",
            "Ms",
        );
        let about = || knowing(json!({"taskId": id}));
        let got = client.ask("tasks/get", about())["result"].take();
        assert_eq!(got["resultType"], "complete", "{got}");
        task(
            &got,
            "working",
            "summarize: working, 5 characters so far",
            "Ms",
        );
        fabric.release();
        let done = poll(DEADLINE, || {
            let got = client.ask("tasks/get", about())["result"].take();
            (got["status"] != "working").then_some(got)
        })
        .expect("the end");
        task(
            &done,
            "completed",
            "summarize: completed, 9 characters",
            "Ms",
        );
        let result = &done["result"];
        includes(&result, json!({"resultType": "complete", "isError": false}));
        assert_eq!(
            result["content"],
            json!([{"type": "text", "text": "part rest"}])
        );
        assert_eq!(result["structuredContent"]["run_id"], json!(id));
        let mut update = about();
        update["inputResponses"] = json!({"never": "asked"});
        for (method, params) in [("tasks/cancel", about()), ("tasks/update", update)] {
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
    let mut client = Stdio::speaking(Era::Modern, Program::with(&fabric).flags("--task-after 0"));
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
    let about = json!({"taskId": created["taskId"]});
    fabric.wait_held(1);
    client.ask("tasks/cancel", knowing(about.clone()));
    let got = client.ask("tasks/get", knowing(about))["result"].take();
    assert_eq!(got["status"], "cancelled", "{got}");
    assert!(
        got.get("result").is_none() && got.get("error").is_none(),
        "{got}"
    );
    fabric.wait_closed(DEADLINE);

    fabric.on_run(Reply::sse().content("half").gate().error("no more"));
    let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
    fabric.wait_held(1);
    fabric.release();
    let about = json!({"taskId": created["taskId"]});
    let got = poll(DEADLINE, || {
        let got = client.ask("tasks/get", knowing(about.clone()))["result"].take();
        (got["status"] != "working").then_some(got)
    })
    .unwrap();
    includes(
        &got,
        json!({"status": "completed", "result": {"isError": true}}),
    );
    assert_eq!(got["result"]["content"][1]["text"], "half", "{got}");
    includes(
        &got["result"]["_meta"]["error"],
        json!({"type": "urn:fabric-mcp:error:fabric-api-error"}),
    );
}

#[test]
fn a_subscriber_is_notified_of_the_end_of_its_tasks() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["part ", "rest"]));
    let mut client = Stdio::speaking(Era::Modern, Program::with(&fabric).flags("--task-after 0"));
    let created = client.ask("tools/call", knowing(run(json!({}))))["result"].take();
    let id = created["taskId"].as_str().unwrap();
    let filter =
        json!({"notifications": {"taskIds": [id, "run_00000000000000000000000000000000"]}});
    client.begin("subscriptions/listen", knowing(filter.clone()));
    let note = client.next_note();
    assert_eq!(
        note["params"]["notifications"],
        json!({"taskIds": [id]}),
        "only what is there: {note}"
    );
    fabric.wait_held(1);
    fabric.release();
    let note = client.next_note();
    assert_eq!(note["method"], "notifications/tasks", "{note}");
    task(
        &note["params"],
        "completed",
        "summarize: completed, 9 characters",
        "Ms",
    );
    assert_eq!(note["params"]["result"]["content"][0]["text"], "part rest");
    assert!(
        note["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].is_i64(),
        "{note}"
    );
    let error = client.error("subscriptions/listen", filter);
    assert_eq!(error["code"], -32021, "{error}");
}

#[test]
fn who_has_not_declared_tasks_gets_none_and_may_not_ask_for_them() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["whole"]));
    let server = transports::serve(
        Wire::Streamable,
        Program::with(&fabric).flags("--task-after 0"),
    );
    let mut client = Streamable::to(&server, Era::Modern, None);
    // A member of legacy tasks is ignored.
    let result = client.request("tools/call", run(json!({"task": {"ttl": 5}})))["result"].take();
    assert_eq!(
        (&result["resultType"], &result["content"][0]["text"]),
        (&json!("complete"), &json!("whole"))
    );
    let id = result["structuredContent"]["run_id"].clone();
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let message = client.message(method, params.clone());
        let answer = client.post(&message);
        assert_eq!(answer.status, 400, "{}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["code"], -32021, "{error}");
        assert_eq!(
            error["data"]["requiredCapabilities"],
            json!({"extensions": {EXTENSION: {}}})
        );
        // The header must repeat the id.
        let mut message = client.message(method, knowing(params));
        message["params"]["taskId"] = json!("run_00000000000000000000000000000000");
        let headers = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", method),
            ("Mcp-Name", "other"),
        ];
        let answer = server.post(&headers, &message);
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_i64()),
            (400, Some(-32020)),
            "{}",
            answer.text()
        );
        let error = client.request(method, message["params"].clone())["error"].take();
        assert_eq!(error["code"], -32602, "unknown: {error}");
    }
}

#[test]
fn a_legacy_caller_asks_for_a_task_and_waits_for_its_result() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::gated(&["part ", "rest"]));
    let mut client = Stdio::speaking(NEWEST, Program::with(&fabric));
    let mut params = run(json!({"task": {"ttl": 9_999_999}, "_meta": {"progressToken": "t"}}));
    params["arguments"]["stream"] = json!(true);
    let created = client.result("tools/call", params);
    let id = task(
        &created["task"],
        "working",
        "summarize: working, 0 characters so far",
        "",
    );
    assert_eq!(created.as_object().unwrap().len(), 1, "{created}");
    // Progress continues, and names its task.
    let related = json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
    let note = client.next_note();
    assert_eq!(
        (&note["params"]["message"], &note["params"]["_meta"]),
        (&json!("part "), &related),
        "{note}"
    );
    let wait = client.begin("tasks/result", json!({"taskId": id}));
    let got = client.result("tasks/get", json!({"taskId": id}));
    task(
        &got,
        "working",
        "summarize: working, 5 characters so far",
        "",
    );
    includes(
        &client.result("tasks/list", json!({})),
        json!({"tasks": [got]}),
    );
    fabric.release();
    let result = client.answer(&wait)["result"].take();
    assert_eq!(
        result["content"],
        json!([{"type": "text", "text": "part rest"}]),
        "{result}"
    );
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/related-task"],
        json!({"taskId": id})
    );
    let note = poll(DEADLINE, || {
        let note = client.next_note();
        (note["method"] == "notifications/tasks/status").then_some(note)
    })
    .unwrap();
    task(
        &note["params"],
        "completed",
        "summarize: completed, 9 characters",
        "",
    );
    includes(
        &client.error("tasks/cancel", json!({"taskId": id})),
        json!({"code": -32602}),
    );
    includes(
        &client.error("tasks/get", json!({"taskId": "nope"})),
        json!({"code": -32602}),
    );
    includes(
        &client.error("tasks/list", json!({"cursor": "nope"})),
        json!({"code": -32602}),
    );
    assert_eq!(client.error("tasks/get", json!({}))["code"], -32602);
}

#[test]
fn a_legacy_task_is_cancelled_before_the_answer_and_stays_so() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let mut client = Stdio::speaking(NEWEST, Program::with(&fabric));
    let created = client.result("tools/call", run(json!({"task": {}})));
    let about = json!({"taskId": created["task"]["taskId"]});
    fabric.wait_held(1);
    let cancelled = client.result("tasks/cancel", about.clone());
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    fabric.wait_closed(DEADLINE);
    includes(
        &client.result("tasks/get", about.clone()),
        json!({"status": "cancelled"}),
    );
    assert_eq!(client.result("tasks/result", about)["isError"], true);

    fabric.on_run(Reply::sse().error("no"));
    let created = client.result("tools/call", run(json!({"task": {"ttl": 60_000}})));
    assert_eq!(created["task"]["ttl"], 60_000);
    let about = json!({"taskId": created["task"]["taskId"]});
    includes(
        &client.result("tasks/result", about.clone()),
        json!({"isError": true}),
    );
    assert_eq!(client.result("tasks/get", about)["status"], "failed");
}

#[test]
fn without_runs_to_keep_there_are_no_tasks_and_without_a_login_no_list() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--keep-runs 0");
    let mut client = Stdio::start(program);
    let welcome = client.initialize("2025-11-25");
    assert!(
        welcome.to_string().contains("tools") && !welcome.to_string().contains("tasks"),
        "{welcome}"
    );
    let result = client.result("tools/call", run(json!({"task": {}})));
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(client.error("tasks/list", json!({}))["code"], -32601);
    includes(
        &client.error("tasks/get", json!({"taskId": "x"})),
        json!({"code": -32601}),
    );
    let discovered = client.modern("server/discover", json!({}));
    assert!(!discovered.to_string().contains(EXTENSION), "{discovered}");

    let server = transports::serve(Wire::Streamable, Program::with(&fabric));
    let mut client = Streamable::to(&server, NEWEST, None);
    includes(
        &client.request("tasks/list", json!({}))["error"],
        json!({"code": -32601}),
    );
    let created = client.request("tools/call", run(json!({"task": {}})))["result"].take();
    let about = json!({"taskId": created["task"]["taskId"]});
    let result = client.request("tasks/result", about)["result"].take();
    assert_eq!(result["isError"], false, "{result}");
}
