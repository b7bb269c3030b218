//! The maintainer scripts of the package for Debian, in a folder as root, the script that installs an archive, and the workflow
//! that makes a release.

#![cfg(unix)]

use std::process::Command;

use crate::support::folder::TempFolder;

/// A file of this repository.
fn own(file: &str) -> String {
    std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Runs a script as dpkg does.
fn script(root: &TempFolder, name: &str, arguments: &[&str]) {
    let file = format!("{}/.ci/packaging/deb/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut sh = Command::new("sh");
    sh.arg(file).args(arguments).env("DPKG_ROOT", root.text());
    // Without systemctl: this machine's units are none of its business.
    let path = root.path("bin");
    std::fs::create_dir_all(&path).unwrap();
    for tool in ["chmod", "rm", "sh"] {
        let _ = std::os::unix::fs::symlink(format!("/bin/{tool}"), path.join(tool));
    }
    let output = sh.env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
}

#[test]
fn only_a_purge_removes_secrets_and_runs_and_it_removes_all_of_them() {
    use std::os::unix::fs::PermissionsExt;

    let root = TempFolder::new("package");
    let files = [
        "etc/fabric-mcp/tokens",
        "etc/fabric-mcp/8001.env",
        "var/lib/fabric-mcp/run_1.txt",
    ];
    for file in files {
        root.write(file, "secret");
    }
    for (name, arguments) in [
        ("postinst", ["configure", ""]),
        ("prerm", ["upgrade", "2"]),
        ("postrm", ["upgrade", "2"]),
        ("postinst", ["configure", "1"]),
        ("prerm", ["remove", ""]),
        ("postrm", ["remove", ""]),
    ] {
        script(&root, name, &arguments);
        let is_so = files.iter().all(|file| root.path(file).exists());
        assert!(is_so, "{name} {arguments:?}");
        // Even where nothing can make the user.
        let mode = root.path("etc/fabric-mcp").metadata().unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o750);
    }
    script(&root, "postrm", &["purge"]);
    let folders = ["etc/fabric-mcp", "var/lib/fabric-mcp"];
    assert!(!folders.iter().any(|folder| root.path(folder).exists()));
}

#[test]
fn the_installer_replaces_the_program_by_nothing_but_what_the_sums_name() {
    let folder = TempFolder::new("installer");
    let script = own(".ci/packaging/install.sh");
    let script = folder.write("install.sh", script.replace("@VERSION@", "1.2.3"));
    let system = std::env::consts::OS.replace("macos", "darwin");
    let name = format!("fabric-mcp-1.2.3-{}-{system}", std::env::consts::ARCH);
    folder.write(&format!("{name}/fabric-mcp"), "new");
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.current_dir(&folder.0).args(["-c", line, &name]);
        let output = shell.output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let packed = "tar -czf $0.tar.gz $0 && (sha256sum $0.tar.gz || shasum -a 256 $0.tar.gz)";
    let sums = shell(packed);
    if shell("curl --version").is_empty() || sums.is_empty() {
        eprintln!("skipped: curl or tar is not on this machine");
        return;
    }
    for (sums, expected) in [
        (sums.replace("  ", "  other-"), "old"),
        (format!("{:064}{}", 0, &sums[64..]), "old"),
        (sums, "new"),
    ] {
        let program = folder.write("bin/fabric-mcp", "old");
        folder.write("SHA256SUMS", &sums);
        let output = Command::new("sh")
            .arg(&script)
            .env("INSTALL_URL", format!("file://{}", folder.text()))
            .env("INSTALL_DIR", folder.path("bin"))
            .output()
            .unwrap();
        assert_eq!(output.status.success(), expected == "new", "{output:?}");
        assert_eq!(std::fs::read_to_string(&program).unwrap(), expected);
        assert_eq!(std::fs::read_dir(folder.path("bin")).unwrap().count(), 1);
    }
}

#[test]
fn a_tag_gives_the_release_all_that_it_takes() {
    let workflow = own(".github/workflows/release.yml");
    for line in own(".ci/release").lines() {
        let name = line.strip_prefix("#   RELEASE_");
        let name = name.and_then(|name| Some(name.split_once(' ')?.0));
        let is_set = name.is_none_or(|name| workflow.contains(&format!("RELEASE_{name}: ")));
        assert!(is_set, "{line}");
    }
}
