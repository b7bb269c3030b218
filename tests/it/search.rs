//! Finding patterns by what they are good for.

use serde_json::{Value, json};

use crate::support::expect;
use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::{Caller, ERAS, Era};

fn search(client: &mut Stdio, query: &str) -> Value {
    client.success("fabric_list_patterns", json!({"query": query}))
}

/// The names of what a search found.
fn names(found: &Value) -> Vec<&str> {
    assert_eq!(found["patterns"], Value::Null, "{found}");
    let matches = found["matches"].as_array().unwrap().iter();
    matches.map(|row| row["name"].as_str().unwrap()).collect()
}

#[test]
fn matches_have_a_purpose_in_every_revision() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let found = client.call("fabric_list_patterns", json!({"query": "weigh evidence"}));
        let expected = json!({
            "matches": [{"name": "analyze_claims", "description": "Weigh a text's truth claims: evidence for and against, fallacies, a rating each."}],
        });
        assert_eq!(expect::success(era, &found), expected, "{era:?}");
    }
}

#[test]
fn a_search_asks_fabric_nothing_while_the_list_is_fresh() {
    let (fabric, mut client) = ready();
    // Only the list that the start-up log line needs; the search also reads texts.
    // A client that only connects costs no more.
    assert_eq!(fabric.routes(), ["GET /patterns/names"]);
    let first = search(&mut client, "letter");
    fabric.forget();
    assert_eq!(search(&mut client, "letter"), first);
    client.result("prompts/list", json!({}));
    assert!(fabric.requests().is_empty());
    assert!(!client.process().stderr().contains("by name only"));
}

#[test]
fn without_texts_names_are_searched_and_a_warning_says_so() {
    let fabric = FakeFabric::start();
    for (name, _) in crate::support::fixtures::patterns() {
        let path = name.replace('ü', "%C3%BC").replace(' ', "%20");
        let broken = Reply::failure(500, json!("broken"));
        fabric.on(&format!("GET /patterns/{path}"), broken);
    }
    let mut client = Stdio::ready(&fabric);
    let found = search(&mut client, "a summary of a meeting");
    assert_eq!(found["matches"][0]["name"], "summarize_meeting", "{found}");
    expect::contains(&found["warnings"][0], ["only their names were searched"]);
    let nothing = search(&mut client, "volume up");
    expect::contains(&nothing["warnings"][1], ["Unsure. If none"]);
}

#[test]
fn a_query_that_is_not_understood_finds_nothing_and_says_so() {
    let (_fabric, mut client) = ready();
    let found = client.call("fabric_list_patterns", json!({"query": "zzqqxw wwwqq"}));
    let data = expect::success(Era::NEWEST_LEGACY, &found);
    expect::includes(&data, json!({"matches": []}));
    let warning = data["warnings"][0].as_str().unwrap();
    let says = "The query was not understood. Say in plain English";
    assert!(warning.starts_with(says), "{warning}");
    assert_eq!(found["content"][1], Value::Null, "a warning is said once");
    // A weak match is said to be one.
    let found = search(&mut client, "book a flight and a hotel to read a letter in");
    assert!(!names(&found).is_empty(), "{found}");
    let warning = found["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("Nothing fits"), "{warning}");
    let nothing = search(&mut client, "volume up");
    assert_eq!(nothing["warnings"][0], warning, "{nothing}");
    let clear = search(&mut client, "summarize a text");
    assert_eq!(clear["warnings"], Value::Null, "{clear}");
    let [all, asked] = ["", "What patterns are there?"].map(|query| search(&mut client, query));
    assert!(asked["patterns"].is_array() && all == asked, "{asked}");
}

#[test]
fn denied_patterns_are_not_recommended() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--deny-pattern SUMMARIZE");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    let found = search(&mut client, "summarize the text");
    assert!(names(&found).contains(&"summarize_meeting"), "{found}");
    assert!(!names(&found).contains(&"summarize"), "{found}");
    expect::contains(&found["warnings"], ["on this server: summarize"]);
    let name = "create_coding_feature";
    let nothing = search(&mut client, name);
    assert!(!names(&nothing).contains(&name), "{nothing}");
    // Where it would be among the last only, it is not spoken of.
    let meeting = search(&mut client, "what did we decide in the meeting");
    assert_eq!(meeting["warnings"], Value::Null, "{meeting}");
    let arguments = json!({"pattern_name": "summarize"});
    let details = client.success("fabric_get_pattern_details", arguments);
    assert_eq!(details["runnable"], false, "{details}");
    expect::contains(&details["warnings"], ["summarize is denied on this server"]);
}

#[test]
fn ten_come_with_the_variables_that_they_need() {
    let (fabric, mut client) = ready();
    let found = search(&mut client, "write a letter");
    let expected = json!({
        "name": "write_letter",
        "description": "Write a letter to {{ recipient }} from {{sender}}.",
        "variables": [" recipient ", "sender"],
    });
    assert_eq!(found["matches"][0], expected);
    assert_eq!(found["matches"][2]["variables"], Value::Null, "{found}");
    let many: Vec<String> = (10..30).map(|i| format!("letter_{i}")).collect();
    fabric.names(json!(many));
    let mut client = Stdio::ready(&fabric);
    let found = search(&mut client, "letter");
    assert_eq!(names(&found).len(), 10, "{found}");
}
