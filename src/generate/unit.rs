//! The systemd unit: the http transport for many clients, as a transient user with network access only.

use std::path::Path;

/// The folders that `ProtectHome=yes` hides: systemd.exec(5).
const HIDDEN: [&str; 3] = ["/home/", "/root/", "/run/user/"];

/// The sysusers.d entry of the group that reads the tokens file: the service's user exists only while it runs.
pub(super) const SYSUSERS: &str =
    "# The group that reads the tokens of fabric-mcp.\ng fabric-mcp-tokens -\n";

/// The unit that starts `program`.
pub(super) fn unit(program: &Path) -> String {
    text(
        program,
        "# fabric-mcp on http://127.0.0.1:8000/mcp.",
        "",
        "fabric-mcp",
    )
}

/// The template unit, whose instance is the port.
pub(super) fn template(program: &Path) -> String {
    let first =
        "# fabric-mcp@8001 on http://127.0.0.1:8001/mcp, and so on: the instance is the port.";
    text(program, first, " --port %i", "fabric-mcp/%i")
}

fn text(program: &Path, first: &str, port: &str, state: &str) -> String {
    let program = program.to_string_lossy();
    let hidden = if HIDDEN.iter().any(|folder| program.starts_with(folder)) {
        "# Below, ProtectHome= hides this program: install it elsewhere, for example by\n\
         #   install -m 755 fabric-mcp /usr/local/bin/\n\
         # and correct ExecStart=.\n"
    } else {
        ""
    };
    format!(
        "{first} Before the first start, make the token that a client must show:\n\
         #   fabric-mcp --generate sysusers | systemd-sysusers -\n\
         #   install -d -m 750 -g fabric-mcp-tokens /etc/fabric-mcp\n\
         #   install -m 640 -g fabric-mcp-tokens /dev/null /etc/fabric-mcp/tokens\n\
         #   fabric-mcp --generate token NAME run >> /etc/fabric-mcp/tokens\n\
         # More of these can follow at any time, and lines can go: the file is read again when it changes.\n\
         # Other settings, such as FABRIC_BASE_URL and FABRIC_API_KEY, go into /etc/fabric-mcp/env, a line NAME=VALUE each,\n\
         # readable by root only. What the flags in ExecStart= say, no line there can undo.\n\
         {hidden}\
         [Unit]\n\
         Description=Model Context Protocol server for Fabric\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={} --transport http{port} --tokens-file /etc/fabric-mcp/tokens --state-dir %S/{state}\n\
         ExecReload=/bin/kill -HUP $MAINPID\n\
         EnvironmentFile=-/etc/fabric-mcp/env\n\
         Restart=on-failure\n\
         # 2: a wrong setting, which another start does not mend.\n\
         RestartPreventExitStatus=2\n\
         # It asks itself twice in this time whether it still answers.\n\
         WatchdogSec=60\n\
         # Longer than --drain-timeout.\n\
         TimeoutStopSec=20\n\
         LimitNOFILE=65536\n\
         # It takes at most 512 MiB by itself: beyond this something is wrong, and the machine comes first.\n\
         MemoryMax=768M\n\
         \n\
         DynamicUser=yes\n\
         SupplementaryGroups=fabric-mcp-tokens\n\
         StateDirectory={state}\n\
         StateDirectoryMode=0700\n\
         UMask=0077\n\
         CapabilityBoundingSet=\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=strict\n\
         ProtectHome=yes\n\
         ProtectProc=invisible\n\
         ProcSubset=pid\n\
         ProtectClock=yes\n\
         ProtectControlGroups=yes\n\
         ProtectHostname=yes\n\
         ProtectKernelLogs=yes\n\
         ProtectKernelModules=yes\n\
         ProtectKernelTunables=yes\n\
         PrivateDevices=yes\n\
         PrivateMounts=yes\n\
         PrivateTmp=yes\n\
         PrivateUsers=yes\n\
         # AF_UNIX is for services that resolve names.\n\
         RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX\n\
         RestrictNamespaces=yes\n\
         RestrictRealtime=yes\n\
         RestrictSUIDSGID=yes\n\
         LockPersonality=yes\n\
         MemoryDenyWriteExecute=yes\n\
         RemoveIPC=yes\n\
         SystemCallArchitectures=native\n\
         SystemCallFilter=@system-service\n\
         SystemCallFilter=~@privileged @resources\n\
         SystemCallErrorNumber=EPERM\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        command(&program)
    )
}

/// Quotes a path for `ExecStart=`.
fn command(path: &str) -> String {
    let path = path.replace('%', "%%").replace('$', "$$");
    if path
        .chars()
        .all(|c| c.is_alphanumeric() || "/._-+%$".contains(c))
    {
        return path;
    }
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_hardened_and_takes_secrets_from_files() {
        let unit = unit(Path::new("/usr/bin/fabric-mcp"));
        for line in [
            "Type=notify",
            "ExecStart=/usr/bin/fabric-mcp --transport http --tokens-file /etc/fabric-mcp/tokens --state-dir %S/fabric-mcp",
            "ExecReload=/bin/kill -HUP $MAINPID",
            "SupplementaryGroups=fabric-mcp-tokens",
            "StateDirectory=fabric-mcp",
            "MemoryMax=768M",
            "DynamicUser=yes",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ] {
            assert!(unit.lines().any(|l| l == line), "{line}\n{unit}");
        }
        assert!(
            !unit.contains("\nEnvironment="),
            "EnvironmentFile= would win over it"
        );
        assert!(!unit.contains("hides this program"));
    }

    #[test]
    fn the_template_differs_in_what_each_instance_has_alone() {
        let (unit, template) = (
            unit(Path::new("/usr/bin/x")),
            template(Path::new("/usr/bin/x")),
        );
        let other: Vec<&str> = template
            .lines()
            .filter(|line| !unit.lines().any(|l| l == *line))
            .collect();
        assert_eq!(other.len(), 3, "{other:?}");
        assert_eq!(
            other[1],
            "ExecStart=/usr/bin/x --transport http --port %i --tokens-file /etc/fabric-mcp/tokens \
             --state-dir %S/fabric-mcp/%i"
        );
        assert_eq!(other[2], "StateDirectory=fabric-mcp/%i");
        assert!(SYSUSERS.contains("\ng fabric-mcp-tokens -\n"));
    }

    #[test]
    fn a_program_in_a_home_is_warned_of() {
        let warned = |folder: &str| {
            unit(&Path::new(folder).join("fabric-mcp")).contains("hides this program")
        };
        assert!(HIDDEN.iter().all(|folder| warned(folder)) && !warned("/usr/bin"));
    }

    #[test]
    fn paths_mean_themselves() {
        for (path, written) in [
            ("/usr/bin/fabric-mcp", "/usr/bin/fabric-mcp"),
            ("/opt/50%/fabric", "/opt/50%%/fabric"),
            ("/opt/a b/\"c\"", "\"/opt/a b/\\\"c\\\"\""),
        ] {
            assert_eq!(command(path), written);
        }
    }
}
