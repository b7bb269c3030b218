//! Transcripts of videos: requests to Fabric, results, and failures.

use serde_json::{Value, json};

use crate::faults::table::{API_ERROR, INTERNAL, UNAUTHORIZED, UNAVAILABLE};
use crate::support::expect::{self, contains};
use crate::support::fabric::{FakeFabric, Request};
use crate::support::fixtures::HOST_PATH;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::{Stdio, ready};
use crate::support::transports::{self, EACH};
use crate::support::{Caller, DEADLINE, Era, extended};

const TOOL: &str = "fabric_get_transcript";
const ROUTE: &str = "POST /youtube/transcript";
const ID: &str = "--exec-rm_x";
fn video() -> Value {
    json!({ "url": format!("http://user.youtube.com/shorts/{ID}?list=PL1&x=%0A--exec") })
}

#[test]
fn the_text_arrives_over_every_transport_and_fabric_gets_our_url() {
    for (wire, era) in transports::all() {
        let fabric = FakeFabric::start();
        let mut client = transports::open(wire, era, Program::with(&fabric), None);
        let result = client.call(TOOL, video());
        let data = expect::success(era, &result);
        let text = "Said in en, with times: false";
        assert_eq!(result["content"][0]["text"], text, "{wire:?} {era:?}");
        if result.get("structuredContent").is_some() {
            let whole = json!({"transcript": text, "video_id": ID, "title": "A title", "description": "What it is about"});
            assert_eq!(data, whole, "{wire:?} {era:?}");
        }
        let more = json!({"language": "pt-BR", "timestamps": true});
        let result = client.call(TOOL, extended(video(), more.clone()));
        let text = "Said in pt-BR, with times: true";
        assert_eq!(result["content"][0]["text"], text, "{wire:?} {era:?}");
        let url = json!({"url": format!("https://www.youtube.com/watch?v={ID}")});
        let first = extended(url.clone(), json!({"timestamps": false}));
        let asked = fabric.requests_of(ROUTE);
        let asked: Vec<Value> = asked.iter().map(Request::json).collect();
        assert_eq!(asked, [first, extended(url, more)], "{wire:?} {era:?}");
        fabric.expect_chats(0);
    }
}

#[test]
fn title_and_description_are_left_out_where_fabric_has_none() {
    let (fabric, mut client) = ready();
    for reply in [
        json!({"transcript": "said", "title": ID}),
        json!({"transcript": "said", "videoId": ID, "title": "", "description": ""}),
        json!({"transcript": "said", "title": null, "description": null, "more": 1}),
    ] {
        fabric.once(ROUTE, Reply::json(reply));
        let data = client.success(TOOL, video());
        assert_eq!(data, json!({"transcript": "said", "video_id": ID}));
    }
}

#[test]
fn a_failure_says_what_to_do_is_sent_once_and_names_no_path_nor_video() {
    let failure = |text: &str| Reply::failure(500, json!({ "error": text }));
    let quote = format!(
        "yt-dlp failed with language 'en': ERROR: [youtube] {ID}: gone, see {HOST_PATH}/yt-dlp.log"
    );
    let no_tool = failure("yt-dlp not found in PATH. Please install it");
    let no_page = Reply::new(404, "text/plain", "404 page not found");
    let wrong_key = Reply::failure(401, json!({"error": "x"}));
    let blank = Reply::json(json!({"transcript": " "}));
    let foreign = Reply::json(json!({"error": "x"}));
    let broken = Reply::failure(500, json!(HOST_PATH));
    let large = Reply::json(json!({"transcript": "x".repeat(16 << 20)}));
    let rows = [
        (no_tool, INTERNAL, "install yt-dlp there"),
        (failure(&quote), API_ERROR, "'s reason: yt-dlp failed with"),
        (no_page, API_ERROR, "too old to get transcripts"),
        (blank, API_ERROR, "gave Fabric no transcript"),
        (foreign, API_ERROR, "Fabric would not send"),
        (broken, INTERNAL, "Fabric's own log"),
        (wrong_key, UNAUTHORIZED, "wants an API key"),
        (Reply::closes(), UNAVAILABLE, "closed the connection"),
        (large, "response-too-large", "16 MiB"),
    ];
    for (wire, era) in EACH {
        let fabric = FakeFabric::start();
        let mut client = transports::open(wire, era, Program::with(&fabric), None);
        for (reply, kind, words) in &rows {
            fabric.forget();
            fabric.once(ROUTE, reply.clone());
            let result = client.call(TOOL, video());
            let said = expect::failure(era, &result, kind);
            let words = words.to_lowercase();
            expect::contains(said.to_lowercase(), [&*words]);
            expect::no_leak(&result.to_string());
            assert_eq!(fabric.requests_of(ROUTE).len(), 1, "{words}");
        }
        client.success(TOOL, video());
    }
    let (fabric, mut client) = ready();
    for (reply, ..) in &rows {
        fabric.once(ROUTE, reply.clone());
        client.call(TOOL, video());
    }
    client.close_stdin();
    client.wait_exit(DEADLINE);
    let log = client.stderr();
    expect::no_leak(&log);
    expect::contains(&log, ["tool=fabric_get_transcript", "install yt-dlp there"]);
    assert!(!log.contains(ID), "{log}");
}

#[test]
fn a_part_of_a_long_transcript_says_where_the_next_begins() {
    let fabric = FakeFabric::start();
    fabric.on(ROUTE, Reply::json(json!({"transcript": "añb"})));
    let mut client = Stdio::ready(&fabric);
    let mut part = |offset, max_chars| {
        let part = json!({"offset": offset, "max_chars": max_chars});
        client.success(TOOL, extended(video(), part))
    };
    let first = part(0, 2);
    let expected = json!({"transcript": "añ", "total_chars": 3, "next_offset": 2});
    expect::includes(&first, expected);
    contains(&first["warnings"][0], ["offset 2"]);
    let rest = json!({"transcript": "b", "video_id": ID, "total_chars": 3});
    assert_eq!(part(2, 2), rest);
    assert_eq!(part(0, 3), json!({"transcript": "añb", "video_id": ID}));
}

#[test]
fn it_has_the_time_of_a_list_of_models() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric)
        .env("FABRIC_MCP_REQUEST_TIMEOUT", "600")
        .env("FABRIC_MCP_MODELS_TIMEOUT", "1");
    let mut client = Stdio::speaking(Era::NEWEST_LEGACY, program);
    fabric.once(ROUTE, Reply::silence());
    let said = client.failure(TOOL, video(), UNAVAILABLE);
    expect::contains(&said, ["within 1 s", "(--models-timeout)"]);
}
