//! The maintainer scripts of the package for Debian, in a folder as root, and the script that installs an archive.

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
    }
    script(&root, "postrm", &["purge"]);
    let folders = ["etc/fabric-mcp", "var/lib/fabric-mcp"];
    assert!(!folders.iter().any(|folder| root.path(folder).exists()));
}

#[test]
fn the_installer_replaces_the_program_by_nothing_but_what_the_sums_name() {
    let folder = TempFolder::new("installer");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/packaging/install.sh");
    let script = std::fs::read_to_string(script).unwrap();
    let script = folder.write("install.sh", script.replace("@VERSION@", "1.2.3"));
    let system = if cfg!(target_os = "macos") {
        "darwin"
    } else {
        "linux"
    };
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
