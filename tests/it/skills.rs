//! Patterns as skills: the list, the documents, and that the digests match.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio as Pipes};

use serde_json::{Value, json};

use crate::support::expect::{contains, includes};
use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, ERAS, Era};

fn client(fabric: &FakeFabric) -> Stdio {
    Stdio::speaking(Era::MODERN, Program::with(fabric))
}

/// By an independent program, if there is one.
fn sha256(bytes: &[u8]) -> Option<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Pipes::piped())
        .stdout(Pipes::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(bytes).ok()?;
    let output = String::from_utf8(child.wait_with_output().ok()?.stdout).ok()?;
    Some(format!("sha256:{}", output.split(' ').next()?))
}

/// The front matter of a `SKILL.md`, and the rest. Parses only double-quoted YAML strings.
fn parsed(document: &str) -> (Value, &str) {
    let (front, body) = document
        .strip_prefix("---\n")
        .unwrap()
        .split_once("\n---\n")
        .unwrap();
    let mut value = json!({});
    for line in front.lines() {
        let (key, text) = line.split_once(':').unwrap();
        let text = text.trim();
        match (key.strip_prefix("  "), text) {
            (None, "") => value[key] = json!({}),
            (None, text) => value[key] = serde_json::from_str(text).unwrap(),
            (Some(key), text) => value["metadata"][key] = serde_json::from_str(text).unwrap(),
        }
    }
    (value, body)
}

#[test]
fn every_pattern_that_may_be_run_is_a_skill_whose_file_is_as_its_manifest_says() {
    let fabric = FakeFabric::start();
    let mut client = client(&fabric);
    let list = client.result("skills/list", json!({}));
    includes(&list, json!({"cacheScope": "private", "nextCursor": null}));
    assert!(list["ttlMs"].is_u64(), "{list}");
    let skills = list["skills"].as_array().unwrap();
    let name = |skill: &Value| skill["frontmatter"]["name"].as_str().unwrap().to_owned();
    let names: BTreeSet<String> = skills.iter().map(name).collect();
    let count = fixtures::patterns().count() - 1;
    assert_eq!(names.len(), count, "all but create_coding_feature");
    for name in ["uberblick-fur-alle", "write-letter"] {
        assert!(names.contains(name), "{names:?}");
    }
    for skill in skills {
        let uri = skill["uri"].as_str().unwrap();
        let name = skill["frontmatter"]["name"].as_str().unwrap();
        assert_eq!(uri, format!("skill://fabric/{name}/SKILL.md"));
        let got = client.result("skills/get", json!({"uri": uri}));
        assert_eq!(got["skill"], *skill);
        let read = client.result("resources/read", json!({"uri": uri}));
        let contents = &read["contents"][0];
        includes(contents, json!({"uri": uri, "mimeType": "text/markdown"}));
        let text = contents["text"].as_str().unwrap();
        let (front, body) = parsed(text);
        assert_eq!(front, skill["frontmatter"]);
        let pattern = front["metadata"]["fabric-pattern"].as_str().unwrap();
        let details = json!({"pattern_name": pattern});
        let details = client.success("fabric_get_pattern_details", details);
        assert_eq!(front["description"], details["description"]);
        let own = fixtures::text(pattern);
        assert!(body.ends_with(own), "{body}");
        contains(body, [&*format!("`pattern_name` \"{pattern}\"")]);
        let [file] = &skill["resources"].as_array().unwrap()[..] else {
            panic!("one file: {skill}")
        };
        includes(file, json!({"uri": uri, "size": text.len()}));
        if let Some(digest) = sha256(text.as_bytes()) {
            assert_eq!(file["digest"], digest, "{skill}");
        }
    }
    let uri = json!({"uri": "skill://fabric/write-letter/SKILL.md"});
    let letter = client.result("resources/read", uri)["contents"][0]["text"].take();
    contains(&letter, ["`{{ recipient }}`, `{{sender}}`"]);
}

#[test]
fn documents_match_the_snapshot_of_their_manifest() {
    let fabric = FakeFabric::start();
    let mut client = client(&fabric);
    let uri = json!({"uri": "skill://fabric/ai/SKILL.md"});
    let before = client.result("skills/get", uri.clone());
    fabric.text("ai", "Other.");
    // The second is that of the start.
    fabric.wait_requests("GET /patterns/names", 2);
    fabric.forget();
    let read = client.result("resources/read", uri);
    let text = read["contents"][0]["text"].as_str().unwrap();
    assert_eq!(before["skill"]["resources"][0]["size"], text.len());
    assert!(fabric.requests().is_empty());
}

#[test]
fn denied_and_unknown_patterns_are_not_skills() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--deny-pattern Summarize");
    let mut client = Stdio::speaking(Era::MODERN, program);
    let list = client.result("skills/list", json!({})).to_string();
    assert!(!list.contains("skill://fabric/summarize/"), "{list}");
    let all = "skill://fabric/summarize/SKILL.md skill://fabric/create-coding-feature/SKILL.md \
               skill://fabric/nope/SKILL.md skill://fabric/ai/OTHER.md skill://fabric/../SKILL.md";
    for uri in all.split(' ') {
        for method in ["skills/get", "resources/read"] {
            let error = client.error(method, json!({"uri": uri}));
            let found = (&error["code"], &error["data"]["uri"]);
            assert_eq!(found, (&json!(-32602), &json!(uri)), "{method}: {error}");
        }
    }
    for params in [json!({}), json!({"uri": 5})] {
        assert_eq!(client.error("skills/get", params)["code"], -32602);
    }
    includes(
        &client.error("skills/list", json!({"cursor": "page-7"})),
        json!({"code": -32602}),
    );
    let resources = client.result("resources/list", json!({}));
    let part = "skill://";
    assert!(!resources.to_string().contains(part), "not a second time");
}

#[test]
fn only_the_revision_that_knows_skills_has_them() {
    for era in ERAS.into_iter().filter(|era| era.is_legacy()) {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let uri = json!({"uri": "skill://fabric/ai/SKILL.md"});
        for (method, params, code) in [
            ("skills/list", json!({}), -32601),
            ("skills/get", uri.clone(), -32601),
            ("resources/read", uri, -32002),
        ] {
            let error = client.error(method, params);
            assert_eq!(error["code"], code, "{era:?} {method}");
        }
    }
}
