"""What stores and clients read about the program.

manifests.py bundle WHAT PLATFORM=FILE…   the manifest of the MCP bundle fabric-mcp or fabric-patterns that holds these programs
                                          (linux, win32, darwin)
manifests.py server FOLDER                server.json of the MCP registry, for the bundles of fabric-mcp in a folder; needs RELEASE_URL,
                                          and RELEASE_IMAGE for the image in it
"""

import hashlib
import json
import os
import sys
import tarfile
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

PACKAGE = tomllib.loads(Path("Cargo.toml").read_text())["package"]
URL = os.environ.get("RELEASE_URL", "").rstrip("/")
# (variable, key in the bundle, title, description, default, secret)
START = ("FABRIC_MCP_START_FABRIC", "start_fabric", "Start Fabric", "Start the Fabric of this machine when it is needed. "
         "Switch this off to use the address and key below.", True, False)
SETTINGS = [
    ("FABRIC_BASE_URL", "fabric_url", "Fabric's address", "Where fabric --serve listens.", "http://127.0.0.1:8080", False),
    ("FABRIC_API_KEY", "api_key", "Fabric's API key", "The key of fabric --serve --api-key; empty if it has none.", "", True),
]


def bundle(what, *programs):
    programs = dict(program.split("=", 1) for program in programs)
    commands = {platform: "${__dirname}/" + file for platform, file in programs.items()}
    first = next(iter(programs))
    maintainer, _, address = os.environ.get("RELEASE_MAINTAINER", PACKAGE["authors"][0]).partition(" <")
    author = {"name": maintainer}
    if address:
        author["email"] = address.rstrip(">")
    manifest = {
        "manifest_version": "0.3",
        "name": PACKAGE["name"],
        "display_name": "Fabric",
        "version": PACKAGE["version"],
        "description": PACKAGE["description"],
        "long_description": "Find, read and run the patterns of Fabric, a library of tested prompts. Starts the "
                            "Fabric of this machine, which must be set up (`fabric --setup`), or uses one that runs.",
        "author": author,
        "license": PACKAGE["license"],
        "keywords": PACKAGE["keywords"],
        "server": {
            "type": "binary",
            "entry_point": programs[first],
            "mcp_config": {
                "command": commands[first],
                "args": [],
                "env": {variable: "${user_config.%s}" % key for variable, key, *_ in [START, *SETTINGS]},
                "platform_overrides": {platform: {"command": command} for platform, command in commands.items()},
            },
        },
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {"platforms": list(programs)},
        # An optional setting without a default would be passed on as the text of its placeholder.
        "user_config": {
            key: {"type": "boolean" if default is True else "string", "title": title, "description": description, "required": False,
                  "default": default, **({"sensitive": secret} if default is not True else {})}
            for _, key, title, description, default, secret in [START, *SETTINGS]
        },
    }
    if what == "fabric-patterns":
        manifest.update({
            "name": what,
            "display_name": "Fabric patterns",
            "description": "Fabric's patterns, tested prompts for one task each, for your assistant's own model",
            "long_description": "Finds the pattern for a task among those of Fabric, which are inside, and fills it in for the "
                                "assistant to follow. Needs no Fabric, no key and no settings.",
        })
        manifest["server"]["mcp_config"].update(args=["--patterns-dir", "${__dirname}/patterns"], env={})
        del manifest["user_config"]
    if URL:
        manifest["homepage"] = URL
    print(json.dumps(manifest, indent=2))


def forge():
    return {"github.com": "github", "gitlab.com": "gitlab"}.get(urlsplit(URL).hostname)


def server_name():
    """What the MCP registry calls it: by an account of a forge, or by a domain."""
    site = urlsplit(URL)
    owner, _, name = site.path.strip("/").rpartition("/")
    space = f"io.{forge()}.{owner}" if forge() else ".".join(reversed(site.hostname.split(".")))
    return f"{space}/{name or PACKAGE['name']}"


def image(folder):
    """The image at RELEASE_IMAGE, by its digest: clients start it on stdio."""
    with tarfile.open(next(Path(folder).glob("*-oci.tar"))) as layout:
        index = json.load(layout.extractfile("index.json"))
    return {
        "registryType": "oci",
        "identifier": f"{os.environ['RELEASE_IMAGE']}@{index['manifests'][0]['digest']}",
        "transport": {"type": "stdio"},
        "environmentVariables": [{"name": "FABRIC_MCP_TRANSPORT", "value": "stdio"}, *variables()],
    }


def variables(settings=SETTINGS):
    return [
        {"name": variable, "description": description, "isSecret": secret,
         **({"format": "boolean", "default": "true"} if default is True else {"default": default} if default else {})}
        for variable, _, _, description, default, secret in settings
    ]


def server(folder):
    document = {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": server_name(),
        "title": "Fabric",
        "description": PACKAGE["description"],
        "version": PACKAGE["version"],
        "websiteUrl": URL,
        "packages": [
            {
                "registryType": "mcpb",
                "identifier": f"{URL}/releases/download/v{PACKAGE['version']}/{path.name}",
                "version": PACKAGE["version"],
                "fileSha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "transport": {"type": "stdio"},
                "environmentVariables": variables([START, *SETTINGS]),
            }
            for path in sorted(Path(folder).glob("fabric-mcp-*.mcpb"))
        ],
    }
    if os.environ.get("RELEASE_IMAGE"):
        document["packages"].append(image(folder))
    if forge():
        document["repository"] = {"url": URL, "source": forge()}
    (Path(folder) / "server.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    {"bundle": bundle, "server": server}[sys.argv[1]](*sys.argv[2:])
