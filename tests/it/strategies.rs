//! A Fabric without the folder of strategies, which it reports as a 500.

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, ERAS, expect};

const ROUTE: &str = "GET /strategies";
const SAYS: &str = "Fabric has no strategies: it cannot read their folder";

fn without_folder() -> FakeFabric {
    let fabric = FakeFabric::start();
    let error = json!({"error": "Failed to read strategies directory"});
    fabric.on(ROUTE, Reply::failure(500, error));
    fabric
}

#[test]
fn the_list_is_empty_and_a_warning_says_why() {
    for era in ERAS {
        let fabric = without_folder();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let result = client.call("fabric_list_strategies", json!({}));
        let data = expect::success(era, &result);
        assert_eq!(data["strategies"], json!([]), "{era:?}: {result}");
        let warning = data["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with(SAYS), "{warning}");
        expect::contains(warning, ["`fabric --setup`"]);
        let texts = result["content"].as_array().unwrap().len();
        assert_eq!(texts, 1, "a warning is said once: {era:?}: {result}");
    }
}

#[test]
fn a_strategy_that_is_asked_for_is_refused_before_anything_is_run() {
    for era in ERAS {
        let fabric = without_folder();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let run = json!({"pattern_name": "ai", "input_text": "x", "strategy_name": "cot"});
        let plan = json!({"pattern_name": "ai", "input_text": "x", "then": [{"pattern_name": "ai", "strategy_name": "cot"}]});
        for (arguments, place) in [
            (run, "`strategy_name`: "),
            (plan, "`then[0].strategy_name`: "),
        ] {
            let said = client.failure("fabric_run_pattern", arguments, "invalid-request");
            let why = format!("{place}{SAYS}");
            expect::contains(said, [&*why, "Nothing was run."]);
        }
        fabric.expect_chats(0);
        let more = json!({"pattern_name": "ai", "input_text": "x"});
        client.success("fabric_run_pattern", more);
        let arguments = json!({"input_text": "x", "strategy_name": "cot"});
        let get = json!({"name": "ai", "arguments": arguments});
        let error = client.error("prompts/get", get);
        assert_eq!(error["code"], -32602, "{error}");
        expect::contains(&error["message"], [SAYS]);
        let read = json!({"uri": "fabric://strategy/cot"});
        let error = client.error("resources/read", read);
        expect::contains(&error["message"], [SAYS]);
        let argument = json!({"name": "strategy_name", "value": "c"});
        let reference = json!({"type": "ref/prompt", "name": "ai"});
        let params = json!({"ref": reference, "argument": argument});
        let completion = client.result("completion/complete", params)["completion"].take();
        assert_eq!(completion["values"], json!([]));
        for method in ["prompts/list", "resources/list"] {
            client.result(method, json!({}));
        }
        client.close_stdin();
        client.wait_exit(DEADLINE);
        // A missing folder is not an error.
        let log = client.stderr();
        assert!(!log.contains("error=fabric-internal-error"), "{log}");
    }
}

#[test]
fn once_they_are_fetched_they_can_be_used_at_once() {
    let fabric = without_folder();
    let mut client = Stdio::ready(&fabric);
    let run = json!({"pattern_name": "ai", "input_text": "x", "strategy_name": "cot"});
    let get = json!({"name": "ai", "arguments": {"input_text": "x", "strategy_name": "cot"}});
    client.failure("fabric_run_pattern", run.clone(), "invalid-request");
    client.error("prompts/get", get.clone());
    fabric.on(ROUTE, Reply::json(fixtures::strategies()));
    client.success("fabric_run_pattern", run);
    client.result("prompts/get", get);
}

#[test]
fn any_other_failure_of_that_route_stays_one_and_is_left_to_the_run() {
    for (status, kind) in [
        (400, "fabric-api-error"),
        (403, "fabric-api-unauthorized"),
        (404, "fabric-api-error"),
        (501, "fabric-internal-error"),
    ] {
        let fabric = FakeFabric::start();
        fabric.on(ROUTE, Reply::failure(status, json!("x")));
        let mut client = Stdio::ready(&fabric);
        client.failure("fabric_list_strategies", json!({}), kind);
        let run = json!({"pattern_name": "ai", "input_text": "x", "strategy_name": "cot"});
        let result = client.call("fabric_run_pattern", run);
        assert_eq!(result["content"][0]["text"], "Ran ai on: x");
        let arguments = json!({"input_text": "x", "strategy_name": "cot"});
        let get = json!({"name": "ai", "arguments": arguments});
        let error = client.error("prompts/get", get);
        let urn = format!("urn:fabric-mcp:error:{kind}");
        assert_eq!(error["data"]["type"], urn, "{error}");
    }
}
