//! Many concurrent callers: every request gets exactly one answer.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::stdio::{Stdio, ready};

#[test]
fn sixty_four_callers_on_one_pipe_get_their_own_answers() {
    let (fabric, mut client) = ready();
    for round in 0..3 {
        let mut begin = |n| {
            let input = format!("caller {n} in round {round}");
            let arguments =
                json!({"pattern_name": "ai", "input_text": input, "stream": n % 2 == 0});
            let id = client.begin_call("fabric_run_pattern", arguments, Some(json!(n)));
            (id, input)
        };
        let runs: Vec<(Value, String)> = (0..64).map(&mut begin).collect();
        for (id, input) in runs.into_iter().rev() {
            let answer = client.answer(&id);
            let text = format!("Ran ai on: {input}");
            assert_eq!(answer["result"]["content"][0]["text"], text);
        }
        client.notes();
        client.expect_nothing_else();
    }
    fabric.expect_chats(3 * 64);
}

#[test]
fn many_messages_in_one_write_are_answered_in_order() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::start(Program::with(&fabric));
    let all = (0..500).map(|n| format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"ping\"}}\n"));
    let all: String = all.collect();
    client.send_raw(all.as_bytes());
    for n in 0..500 {
        let expected = json!({"jsonrpc": "2.0", "id": n, "result": {}});
        assert_eq!(client.recv(), expected);
    }
}
