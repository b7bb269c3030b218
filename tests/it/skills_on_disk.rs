//! `--generate skills`: what is written, what a second run replaces, and what is never touched.

use std::fs;

use serde_json::json;

use crate::support::fabric::FakeFabric;
use crate::support::folder::TempFolder;
use crate::support::process::{Finished, Program};
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era};

/// Two patterns in a folder, and the flag that names it.
fn patterns(name: &str) -> (TempFolder, String) {
    let folder = TempFolder::new(name);
    folder.write("patterns/sum_up/system.md", "Sum it up.\n");
    folder.write("patterns/write_letter/system.md", "Write a letter.\n");
    let flag = format!("--patterns-dir {}/patterns", folder.text());
    (folder, flag)
}

fn generate(from: &str, into: &str) -> Finished {
    let line = format!("{from} --generate skills {into}");
    Program::new([]).flags(&line).run(DEADLINE)
}

#[test]
fn the_files_are_the_skills_of_the_server_with_origin_and_digest() {
    let fabric = FakeFabric::start();
    let (folder, flag) = patterns("skills-same");
    folder.write("patterns/sum-up/system.md", "One of both gets a number.\n");
    for (from, origin) in [
        (format!("--fabric-url {}", fabric.url()), fabric.url()),
        (flag, format!("{}/patterns", folder.text())),
    ] {
        let mut client = Stdio::speaking(Era::MODERN, Program::new([]).flags(&from));
        let list = client.result("skills/list", json!({}));
        let skills = list["skills"].as_array().unwrap();
        let into = TempFolder::new("skills-same-into");
        let finished = generate(&from, &format!("{}/new/skills --all", into.text()));
        let count = skills.len();
        finished
            .expect_code(0)
            .expect_stdout(&format!("{count} written, 0 unchanged, of {count} skills"));
        for skill in skills {
            let name = skill["frontmatter"]["name"].as_str().unwrap();
            let read = client.result("resources/read", json!({"uri": skill["uri"]}));
            let file = into.path(&format!("new/skills/{name}/SKILL.md"));
            let file = fs::read_to_string(file).unwrap();
            // Two lines are in the file alone.
            let lines = file.split_inclusive('\n');
            let unsigned = lines.filter(|line| !line.starts_with("  fabric-mcp-"));
            let unsigned = String::from_iter(unsigned);
            assert_eq!(unsigned, read["contents"][0]["text"], "{name}");
            let line = format!("\n  fabric-mcp-origin: {}\n", json!(origin));
            assert!(file.contains(&line), "{file}");
        }
    }
}

#[test]
fn a_second_run_replaces_what_is_unchanged_and_keeps_the_rest() {
    let (folder, flag) = patterns("skills-again");
    let into = format!("{}/skills sum_up WriteLetter", folder.text());
    let done = generate(&flag, &into);
    done.expect_code(0).expect_stdout("2 written");
    let done = generate(&flag, &into);
    done.expect_code(0).expect_stdout("0 written, 2 unchanged");
    let letter = folder.path("skills/write-letter/SKILL.md");
    let changed = fs::read_to_string(&letter).unwrap() + "Mine.\n";
    fs::write(&letter, &changed).unwrap();
    folder.write("patterns/write_letter/system.md", "Write a long letter.\n");
    folder.write("patterns/sum_up/system.md", "Sum it all up.\n");
    let finished = generate(&flag, &into);
    finished
        .expect_code(0)
        .expect_stdout("kept write-letter: ")
        .expect_stdout("1 written, 0 unchanged, of 2 skills");
    assert_eq!(fs::read_to_string(&letter).unwrap(), changed);
    let sum = fs::read_to_string(folder.path("skills/sum-up/SKILL.md")).unwrap();
    assert!(sum.ends_with("Sum it all up.\n"), "{sum}");
    let files = fs::read_dir(folder.path("skills/sum-up")).unwrap();
    assert_eq!(files.count(), 1, "no file is left behind");
}

#[cfg(unix)]
#[test]
fn no_link_is_followed() {
    use std::os::unix::fs::symlink;

    let (folder, flag) = patterns("skills-links");
    folder.write("elsewhere/SKILL.md", "Mine.");
    fs::create_dir_all(folder.path("skills/sum-up")).unwrap();
    let file = folder.path("skills/sum-up/SKILL.md");
    symlink("../../elsewhere/SKILL.md", file).unwrap();
    symlink("../elsewhere", folder.path("skills/write-letter")).unwrap();
    let finished = generate(&flag, &format!("{}/skills --all", folder.text()));
    finished
        .expect_code(1)
        .expect_stdout("refused sum_up: ")
        .expect_stdout("refused write_letter: ")
        .expect_stdout("0 written");
    symlink("skills", folder.path("link")).unwrap();
    for link in ["link", "link/", "link/."] {
        let finished = generate(&flag, &format!("{}/{link} --all", folder.text()));
        finished.expect_code(1).expect_stderr("is a link");
    }
    fs::create_dir(folder.path("skills/fabric")).unwrap();
    symlink("../../elsewhere", folder.path("skills/fabric/references")).unwrap();
    let line = format!("{flag} --generate skill {}/skills", folder.text());
    let finished = Program::new([]).flags(&line).run(DEADLINE);
    finished.expect_code(1).expect_stdout("refused fabric: ");
    assert!(!folder.path("skills/fabric/SKILL.md").exists());
    let mine = fs::read_to_string(folder.path("elsewhere/SKILL.md")).unwrap();
    assert_eq!(mine, "Mine.");
    assert_eq!(fs::read_dir(folder.path("elsewhere")).unwrap().count(), 1);
}

#[test]
fn a_file_in_the_place_of_a_folder_is_told_with_what_to_do() {
    let (folder, flag) = patterns("skills-file");
    folder.write("skills/sum-up", "Mine.");
    let into = format!("{}/skills", folder.text());
    let fix = "/skills/sum-up\"; it must be a folder that you may write to, not a link";
    generate(&flag, &format!("{into} --all"))
        .expect_code(1)
        .expect_stdout("refused sum_up: not a folder: \"")
        .expect_stdout(fix);
    let into = format!("{into}/sum-up sum_up");
    generate(&flag, &into).expect_code(1).expect_stderr(fix);
    // Told once, and not again for each pattern.
    folder.write("skills/fabric", "Mine.");
    let line = format!("--generate skill {}/skills", folder.text());
    let finished = Program::new([]).flags(&flag).flags(&line).run(DEADLINE);
    finished.expect_code(1).expect_stdout("refused fabric: ");
    assert_eq!(finished.stdout.lines().count(), 2, "{}", finished.stdout);
}

#[test]
fn one_skill_has_an_index_and_all_patterns_and_is_replaced_like_others() {
    let (folder, flag) = patterns("skill-one");
    folder.write("patterns/mine/system.md", "# PURPOSE\n\nDo it my way.\n");
    let one = |rest: &str| {
        let line = format!("--generate skill {}/skills{rest}", folder.text());
        Program::new([]).flags(&flag).flags(&line).run(DEADLINE)
    };
    let words = "4 written, 0 unchanged, of 4 files.";
    one("").expect_code(0).expect_stdout(words);
    let index = fs::read_to_string(folder.path("skills/fabric/SKILL.md")).unwrap();
    let (_, description) = index.split_once("\ndescription: \"").unwrap();
    let (description, _) = description.split_once("\"\n").unwrap();
    assert!(description.len() <= 650, "{description}");
    for part in [
        "---\nname: fabric\n",
        "  fabric-patterns: \"3\"\n",
        "## Write and create\n\n- `write_letter`: ",
        "## Others\n\n- `mine`: Do it my way.\n- `sum_up`: ",
    ] {
        assert!(index.contains(part), "{part}: {index}");
    }
    let mine = folder.path("skills/fabric/references/mine.md");
    let text = fs::read_to_string(&mine).unwrap();
    assert!(text.ends_with("\n\nDo it my way.\n"), "{text}");
    fs::write(&mine, "Mine.").unwrap();
    folder.write("patterns/sum_up/system.md", "Sum.\n");
    one("")
        .expect_stdout("kept fabric/references/mine.md: ")
        .expect_stdout("2 written, 1 unchanged");
    fs::write(folder.path("skills/fabric/SKILL.md"), "Mine.").unwrap();
    folder.write("patterns/sum_up/system.md", "Sum up.\n");
    one("").expect_stdout("move it away to get the new one\n0 written, 0");
    one("/x mine").expect_stdout("2 written, 0 unchanged, of 2 files.");
}

#[test]
fn a_plugin_brings_skill_and_patterns_and_names_no_place() {
    let (folder, flag) = patterns("plugin");
    let into = format!("{}/plugin", folder.text());
    let line = format!("{flag} --generate plugin {into}");
    let plugin = || Program::new([]).flags(&line);
    let finished = plugin().env("FABRIC_API_KEY", "canary").run(DEADLINE);
    finished.expect_code(0).expect_stdout("7 written");
    let read = |file: &str| fs::read_to_string(format!("{into}/{file}")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&read("plugin.json")).unwrap();
    assert_eq!(manifest["name"], "fabric");
    let servers: serde_json::Value = serde_json::from_str(&read("mcp.json")).unwrap();
    let server = &servers["mcpServers"]["fabric"];
    assert_eq!(server["command"], "fabric-mcp");
    let all = "plugin.json mcp.json skills/fabric/SKILL.md skills/fabric/references/sum_up.md";
    for text in all.split(' ') {
        let text = read(text);
        let is_so = !text.contains(folder.text()) && !text.contains("canary");
        assert!(is_so, "{text}");
    }
    // As a client starts it.
    let args = server["args"].as_array().unwrap().iter();
    let program = args.fold(Program::new([]), |program, arg| {
        program.arg(&arg.as_str().unwrap().replace("${PLUGIN_ROOT}", &into))
    });
    let mut client = Stdio::speaking(Era::MODERN, program);
    let arguments = json!({"pattern_name": "sum_up", "input_text": "x"});
    let result = client.success("fabric_run_pattern", arguments);
    let text = result["output_text"].as_str().unwrap();
    assert!(text.ends_with("Sum it up.\nx"), "{text}");
    let again = plugin().run(DEADLINE);
    again.expect_code(0).expect_stdout("0 written, 7 unchanged");
    folder.write("patterns/new/system.md", "New.");
    let more = plugin().run(DEADLINE);
    more.expect_code(0).expect_stdout("3 written, 6 unchanged");
    folder.write("plugin/plugin.json", r#"{"name": "another"}"#);
    let beside = "kept plugin.json: another text is there, perhaps somebody's work; move it away to get the new one\n0 written, 0 unch";
    plugin().run(DEADLINE).expect_code(0).expect_stdout(beside);
}

#[test]
fn many_skills_are_told_that_one_would_do() {
    let (folder, flag) = patterns("skills-many");
    for i in 0..99 {
        let name = format!("patterns/{}_{i}/system.md", "long".repeat(10));
        folder.write(&name, "Do what a long sentence tells you to do and more.");
    }
    let finished = generate(&flag, &format!("{}/skills --all", folder.text()));
    let words = "--generate skill makes one skill of all";
    finished.expect_code(0).expect_stdout(words);
}

#[test]
fn a_wrong_name_or_command_writes_nothing() {
    let (folder, flag) = patterns("skills-wrong");
    let into = format!("{}/skills", folder.text());
    for (rest, code, says) in [
        ("", 2, "pattern names or --all"),
        (" sum_up --all", 2, "pattern names or --all"),
        (" sum_upp nosuch", 1, "\"sum_upp\""),
        (" ../x", 1, "--generate skills"),
        (" sum_up --deny-pattern sum_up", 1, "--deny-pattern"),
    ] {
        let finished = generate(&flag, &format!("{into}{rest}"));
        finished.expect_code(code).expect_stderr(says);
    }
    assert!(!folder.path("skills").exists());
    // Of several names, those that are right are written.
    let some = generate(&flag, &format!("{into} sum_up sum_upp"));
    some.expect_code(1)
        .expect_stdout("refused sum_upp: Fabric has no pattern")
        .expect_stdout("1 written");
}
