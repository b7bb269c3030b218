//! A Fabric without the folder of strategies, which it reports as a 500.

use serde_json::{Value, json};

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
    fabric.on(
        ROUTE,
        Reply::failure(500, json!({"error": "Failed to read strategies directory"})),
    );
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
        assert!(
            warning.starts_with(SAYS) && warning.contains("`fabric --setup`"),
            "{warning}"
        );
        assert_eq!(result["content"][1]["text"], warning, "{era:?}: {result}");
    }
}

#[test]
fn a_strategy_that_is_asked_for_is_refused_before_anything_is_run() {
    for era in ERAS {
        let fabric = without_folder();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        for (arguments, place) in [
            (
                json!({"pattern_name": "ai", "strategy_name": "cot"}),
                "`strategy_name`: ",
            ),
            (
                json!({"pattern_name": "ai", "then": [{"pattern_name": "ai", "strategy_name": "cot"}]}),
                "`then[0].strategy_name`: ",
            ),
        ] {
            let said = client.failure("fabric_run_pattern", arguments, "invalid-request");
            expect::contains(&said, [&format!("{place}{SAYS}"), "Nothing was run."]);
        }
        fabric.expect_chats(0);
        client.success("fabric_run_pattern", json!({"pattern_name": "ai"}));
        let arguments = json!({"input_text": "x", "strategy_name": "cot"});
        let answer = client.request("prompts/get", json!({"name": "ai", "arguments": arguments}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        expect::contains(answer["error"]["message"].as_str().unwrap(), [SAYS]);
        let answer = client.request("resources/read", json!({"uri": "fabric://strategy/cot"}));
        expect::contains(answer["error"]["message"].as_str().unwrap(), [SAYS]);
        let argument = json!({"name": "strategy_name", "value": "c"});
        let reference = json!({"type": "ref/prompt", "name": "ai"});
        let answer = client.request(
            "completion/complete",
            json!({"ref": reference, "argument": argument}),
        );
        expect::includes(&answer["result"]["completion"], json!({"values": []}));
        for method in ["prompts/list", "resources/list"] {
            assert!(
                client.request(method, json!({})).get("result").is_some(),
                "{method}"
            );
        }
        client.close_stdin();
        client.wait_exit(DEADLINE);
        // A missing folder is not an error.
        assert!(
            !client.stderr().contains("error=fabric-internal-error"),
            "{}",
            client.stderr()
        );
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
        (501, "fabric-internal-error"),
    ] {
        let fabric = FakeFabric::start();
        fabric.on(ROUTE, Reply::failure(status, json!("x")));
        let mut client = Stdio::ready(&fabric);
        client.failure("fabric_list_strategies", json!({}), kind);
        let run = json!({"pattern_name": "ai", "input_text": "x", "strategy_name": "cot"});
        expect::includes(
            &client.call("fabric_run_pattern", run)["content"][0],
            json!({"text": "Ran ai on: x"}),
        );
        let arguments = json!({"input_text": "x", "strategy_name": "cot"});
        let answer = client.request("prompts/get", json!({"name": "ai", "arguments": arguments}));
        let urn = format!("urn:fabric-mcp:error:{kind}");
        assert_eq!(
            answer["error"]["data"]["type"],
            Value::String(urn),
            "{answer}"
        );
    }
}
