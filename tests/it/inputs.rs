//! What a run works on: links and empty inputs, which are refused, transcripts, and outputs of earlier runs. Also dry
//! runs.

use serde_json::{Value, json};

use crate::http::access::File;
use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::transports::{self, EACH, Wire};
use crate::support::web::Streamable;
use crate::support::{Caller, DEADLINE, Era, expect, extended};

const RUN: &str = "fabric_run_pattern";
const UNKNOWN_RUN: &str = "None of your runs has the id in `input_from.run_id`";

#[test]
fn what_is_no_input_is_not_run_unless_it_is_said_to_be_one() {
    let (fabric, mut client) = ready();
    let none = "|null|{input}|[paste text here]|<your_text>|%TEXT%|None|``` ```|(N/A)|输入:|[Text hier einfügen]|";
    let named = "/tmp/x.md| https://youtu.be/abc-DEF_123\n|Summarize report.pdf";
    for input in [none, named].concat().split('|') {
        let run = |more: Value| extended(json!({"pattern_name": "ai", "input_text": input}), more);
        let said = client.failure(RUN, run(json!({})), "invalid-request");
        let mut advice = ["input_is_text", "empty"].iter();
        let advice = advice.find(|word| said.contains(**word)).unwrap();
        contains(&said, ["`input_text`", advice, "Nothing was run."]);
        client.failure(RUN, run(json!({"then": ["ai"]})), "invalid-request");
        client.success(RUN, run(json!({"dry_run": true})));
        fabric.expect_chats(0);
        for more in [
            json!({"input_is_text": true}),
            json!({"context_name": "work"}),
            json!({"session_name": "talk"}),
        ] {
            client.success(RUN, run(more));
        }
        fabric.expect_chats(3);
        fabric.forget();
    }
    // Variables may be all that a pattern needs.
    let letter = json!({"sender": "me", " recipient ": "you"});
    let arguments = json!({"pattern_name": "write_letter", "variables": letter});
    client.success(RUN, arguments);
    fabric.forget();
    let own = json!({"pattern_name": "create_diagram"});
    let said = client.failure(RUN, own, "invalid-request");
    contains(&said, ["`input_text` is empty", "Nothing was run."]);
    fabric.expect_chats(0);
    // A prompt that is to be improved may ask for anything.
    fabric.on_run(Reply::run(&["better"]));
    let prompt = json!({"pattern_name": "improve_prompt", "input_text": "Summarize report.pdf"});
    client.success(RUN, prompt);
}

#[test]
fn a_dry_run_shows_what_prompts_get_shows_and_runs_nothing() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let program = Program::with(&fabric).flags("--max-calls-per-minute 1");
        let mut client = transports::open(wire, era, program, None);
        let arguments = json!({"lang_code": "de", "input_text": "x", "strategy_name": "cot"});
        let params = json!({"name": "translate", "arguments": arguments});
        let prompt = client.ask("prompts/get", params);
        let prompt = &prompt["result"]["messages"][0]["content"]["text"];
        for _ in 0..2 {
            let dry = json!({"pattern_name": "translate", "input_text": "x", "strategy_name": "cot",
                "context_name": "work", "variables": {"lang_code": "de"}, "then": ["ai"], "dry_run": true});
            let result = client.call(RUN, dry);
            expect::success(era, &result);
            assert_eq!(&result["content"][0]["text"], prompt, "{wire:?}");
            let said = result["content"].to_string();
            let told = ["cot", "work", "`then` are not shown"].map(|word| said.contains(word));
            assert_eq!(told, [true; 3], "{said}");
        }
        let lacking = json!({"pattern_name": "translate", "dry_run": true});
        contains(client.call(RUN, lacking).to_string(), ["lang_code"]);
        fabric.expect_chats(0);
    }
}

#[test]
fn half_a_character_that_javascript_cut_off_is_the_replacement_character() {
    let fabric = FakeFabric::start();
    let call = |id: u8| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{RUN}","arguments":{{"pattern_name":"ai","input_text":"cut \ud83d"}}}}}}"#
        )
    };
    let mut client = Stdio::ready(&fabric);
    client.send_raw(format!("{}\n", call(7)).as_bytes());
    let answer = client.answer(&json!(7));
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let server = HttpServer::start(Program::with(&fabric));
    let session = [
        ("Content-Type", "application/json"),
        (
            "Mcp-Session-Id",
            "2025-11-25.0123456789abcdef0123456789abcdef",
        ),
    ];
    let mut http = server.connect();
    let answer = http.request("POST", "/mcp", &session, Some(call(8).as_bytes()));
    assert_eq!(answer.status, 200);
    for chat in fabric.chats() {
        assert_eq!(chat["prompts"][0]["userInput"], "cut \u{fffd}");
    }
    fabric.expect_chats(2);
}

const TRANSCRIPT: &str = "POST /youtube/transcript";

fn of_video() -> Value {
    json!({"pattern_name": "ai", "input_from": {"youtube": "https://youtu.be/abc-DEF_123", "language": "de"}})
}

#[test]
fn a_run_on_a_video_gets_its_transcript_and_one_on_a_run_its_output() {
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let mut client = transports::open(wire, era, Program::with(&fabric), None);
        let result = client.call(RUN, of_video());
        let said = "Ran ai on: Said in de, with times: false";
        assert_eq!(result["content"][0]["text"], said, "{wire:?}: {result}");
        let runs = expect::success(era, &result);
        let Some(id) = runs["run_id"].as_str() else {
            continue;
        };
        let again =
            json!({"pattern_name": "summarize", "max_chars": 3, "input_from": {"run_id": id}});
        let result = client.call(RUN, again);
        assert_eq!(result["content"][0]["text"], "Ran", "{wire:?}: {result}");
        assert_eq!(fabric.chats()[1]["prompts"][0]["userInput"], said);
        fabric.expect_chats(2);
    }
}

#[test]
fn names_are_checked_before_a_transcript_is_fetched() {
    let (fabric, mut client) = ready();
    for dry_run in [false, true] {
        let mut run = of_video();
        run["strategy_name"] = json!("nope");
        run["dry_run"] = json!(dry_run);
        let said = client.failure(RUN, run, "invalid-request");
        assert!(said.contains("no strategy named \"nope\""), "{said}");
    }
    assert!(fabric.requests_of("POST /youtube/transcript").is_empty());
    fabric.expect_chats(0);
}

#[test]
fn a_run_whose_input_cannot_be_had_fails_and_nothing_is_sent() {
    let (fabric, mut client) = ready();
    fabric.once(TRANSCRIPT, Reply::json(json!({"transcript": " "})));
    let said = client.failure(RUN, of_video(), "fabric-api-error");
    assert!(said.contains("gave Fabric no transcript"), "{said}");
    // Cancelled while Fabric fetches it.
    fabric.once(TRANSCRIPT, Reply::silence());
    fabric.forget();
    let id = client.begin_call(RUN, of_video(), None);
    fabric.wait_requests(TRANSCRIPT, 1);
    client.cancel(&id);
    assert_eq!(fabric.wait_closed(DEADLINE).route, TRANSCRIPT);
    // Answered while Fabric fetches it.
    fabric.once(TRANSCRIPT, Reply::silence());
    let mut slow = of_video();
    slow["wait_seconds"] = json!(0);
    let data = client.success(RUN, slow);
    assert_eq!(data["status"], "working", "{data}");
    let on = |id: &Value| json!({"pattern_name": "ai", "input_from": {"run_id": id}});
    let said = client.failure(RUN, on(&data["run_id"]), "invalid-request");
    assert!(said.contains("the status working"), "{said}");
    let mut unknown = on(&json!("run_00000000000000000000000000000000"));
    unknown["strategy_name"] = json!("nope");
    let said = client.failure(RUN, unknown, "invalid-request");
    contains(&said, [UNKNOWN_RUN, "no strategy named \"nope\""]);
    fabric.expect_chats(0);
}

#[test]
fn the_output_of_somebody_elses_run_is_unknown() {
    let fabric = FakeFabric::start();
    fabric.on_run(Reply::run(&["Alice's"]));
    let tokens =
        [('a', "alice"), ('b', "bob")].map(|(letter, name)| (name, letter.to_string().repeat(32)));
    let lines = tokens.each_ref();
    let lines = lines.map(|(name, token)| format!("{name} run {token}\n"));
    let file = File::new("inputs", &lines.each_ref().map(String::as_str));
    let server = transports::serve(Wire::Streamable, file.program(&fabric));
    let [mut alice, mut bob] =
        tokens.map(|(_, token)| Streamable::to(&server, Era::MODERN, Some(&token)));
    let id = alice.success(RUN, json!({"pattern_name": "ai", "input_text": "x"}))["run_id"].take();
    let run = json!({"pattern_name": "summarize", "input_from": {"run_id": id}});
    fabric.forget();
    let said = bob.failure(RUN, run.clone(), "invalid-request");
    contains(&said, [UNKNOWN_RUN]);
    fabric.expect_chats(0);
    alice.success(RUN, run);
    assert_eq!(fabric.chats()[0]["prompts"][0]["userInput"], "Alice's");
}
