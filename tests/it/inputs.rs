//! What a run works on: links and nothing, transcripts, outputs of earlier runs; and dry runs.

use serde_json::json;

use crate::support::Caller;
use crate::support::fabric::FakeFabric;
use crate::support::stdio::Stdio;

const RUN: &str = "fabric_run_pattern";

#[test]
fn a_link_alone_is_not_run_and_an_input_that_is_none_brings_a_warning() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::ready(&fabric);
    let mut link = json!({"pattern_name": "ai", "input_text": " https://youtu.be/abc-DEF_123\n"});
    let said = client.failure(RUN, link.clone(), "invalid-request");
    assert!(
        said.contains("`input_text`") && said.contains("words around it"),
        "{said}"
    );
    fabric.expect_chats(0);
    link["search"] = json!(true);
    let data = client.success(RUN, link);
    assert!(data.get("warnings").is_none(), "{data}");
    for (arguments, words) in [
        (json!({"pattern_name": "ai"}), "There was no input"),
        (
            json!({"pattern_name": "ai", "input_text": "/tmp/x.md"}),
            "only a path",
        ),
    ] {
        let data = client.success(RUN, arguments);
        assert!(
            data["warnings"][0].as_str().unwrap().contains(words),
            "{data}"
        );
    }
    fabric.expect_chats(3);
}
