//! The maintainer scripts of the package for Debian, in a folder as root.

#![cfg(unix)]

use std::process::Command;

use crate::support::folder::TempFolder;

/// Runs a script as dpkg does.
fn script(root: &TempFolder, name: &str, arguments: &[&str]) {
    let file = format!("{}/.ci/packaging/deb/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut script = Command::new("sh");
    let script = script
        .arg(file)
        .args(arguments)
        .env("DPKG_ROOT", root.text());
    // Without systemctl: this machine's units are none of its business.
    let path = root.path("bin");
    std::fs::create_dir_all(&path).unwrap();
    for tool in ["rm", "sh"] {
        let _ = std::os::unix::fs::symlink(format!("/bin/{tool}"), path.join(tool));
    }
    let output = script.env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
}

#[test]
fn only_a_purge_removes_secrets_and_runs_and_it_removes_all_of_them() {
    let root = TempFolder::new("package");
    let files = [
        "etc/fabric-mcp/tokens",
        "etc/fabric-mcp/8001.env",
        "var/lib/private/fabric-mcp/run_1.txt",
    ];
    for file in files {
        root.write(file, "secret");
    }
    let state = root.path("var/lib/fabric-mcp");
    std::os::unix::fs::symlink("private/fabric-mcp", &state).unwrap();
    for (name, arguments) in [
        ("postinst", ["configure", ""]),
        ("prerm", ["upgrade", "2"]),
        ("postrm", ["upgrade", "2"]),
        ("postinst", ["configure", "1"]),
        ("prerm", ["remove", ""]),
        ("postrm", ["remove", ""]),
    ] {
        script(&root, name, &arguments);
        assert!(
            files.iter().all(|file| root.path(file).exists()),
            "{name} {arguments:?}"
        );
    }
    script(&root, "postrm", &["purge"]);
    assert!(!root.path("etc/fabric-mcp").exists() && state.symlink_metadata().is_err());
    assert!(!root.path("var/lib/private/fabric-mcp").exists());
}
