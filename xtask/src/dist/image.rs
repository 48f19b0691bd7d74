//! An OCI image from scratch: the command, and the C library that it is linked to.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::archive::pack;
use super::binary::Binary;
use super::papers::Papers;
use super::place::Dist;
use super::tools::{copy, empty, output, run, write};

/// The user that it runs as: of no system.
const USER: u32 = 65_532;

/// Writes `lockkeeper-VERSION-image.tar`, which `skopeo copy oci-archive:…` and `podman load` read.
pub(super) fn write_image(dist: &Dist, binary: &Binary, papers: &Papers) -> Result<()> {
    let folder = dist.work.join("image");
    empty(&folder)?;
    let layer = folder.join("layer.tar.gz");
    stage(dist, &folder.join("root"), binary, papers)?;
    pack(dist, &folder.join("root"), ".", &layer)?;
    let unpacked =
        output(Command::new("sh").args(["-c", "gzip -dc \"$0\" | sha256sum"]).arg(&layer))?;
    let unpacked =
        unpacked.split_whitespace().next().context("sha256sum printed nothing")?.to_owned();

    let layout = folder.join("layout");
    let created = dist.time()?;
    let config = json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "2181/tcp": {} },
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/lockkeeper"],
            "Cmd": ["serve", "--listen", "0.0.0.0:2181", "--allow-plaintext", "--data-dir", "/data/engine"],
            "Volumes": { "/data": {} },
            "WorkingDir": "/data",
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/lockkeeper", "--connect", "127.0.0.1:2181", "--connect-timeout", "3s", "-q", "ls"],
                "Interval": 10_000_000_000_u64,
                "Timeout": 5_000_000_000_u64,
            },
            "Labels": {
                "org.opencontainers.image.title": "lockkeeper",
                "org.opencontainers.image.version": dist.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    });
    let config = blob(&layout, config.to_string().as_bytes(), "config.v1+json")?;
    let layer = blob(&layout, &fs::read(&layer)?, "layer.v1.tar+gzip")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = blob(&layout, manifest.to_string().as_bytes(), "manifest.v1+json")?;
    manifest["annotations"] =
        json!({ "org.opencontainers.image.ref.name": format!("lockkeeper:{}", dist.version) });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    write(&layout.join("index.json"), index.to_string())?;
    write(&layout.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    run(Command::new("chown").args(["--recursive", "0:0"]).arg(&layout))?;
    pack(dist, &layout, ".", &dist.out.join(format!("lockkeeper-{}-image.tar", dist.version)))
}

/// The files of the image.
fn stage(dist: &Dist, root: &Path, binary: &Binary, papers: &Papers) -> Result<()> {
    copy(&binary.path, &root.join("usr/bin/lockkeeper"), 0o755)?;
    let libraries = output(Command::new("ldd").arg(&binary.path))?;
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let file = fs::canonicalize(library)?;
        copy(&file, &root.join(library.trim_start_matches('/')), 0o755)?;
    }
    // That of the C library refers to the other two.
    for licence in ["doc/libc6/copyright", "common-licenses/GPL-2", "common-licenses/LGPL-2.1"] {
        let file = Path::new("usr/share").join(licence);
        copy(&Path::new("/").join(&file), &root.join(&file), 0o644)?;
    }
    let own = root.join("usr/share/doc/lockkeeper");
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&dist.sources.join(licence), &own.join(licence), 0o644)?;
    }
    copy(&papers.licences, &own.join("THIRD-PARTY-LICENSES.txt"), 0o644)?;
    write(
        &root.join("etc/passwd"),
        format!("lockkeeper:x:{USER}:{USER}::/data:/usr/bin/lockkeeper\n"),
    )?;
    write(&root.join("etc/group"), format!("lockkeeper:x:{USER}:\n"))?;
    write(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    for empty in ["tmp", "etc/lockkeeper"] {
        fs::create_dir_all(root.join(empty))?;
    }
    fs::create_dir_all(root.join("data"))?;
    let modes = "chown -R 0:0 \"$0\" && find \"$0\" -type d -exec chmod 755 {} + && chmod 1777 \"$0/tmp\" && \
                 chown $1:$1 \"$0/data\" && chmod 700 \"$0/data\"";
    run(Command::new("sh").args(["-c", modes]).arg(root).arg(USER.to_string()))
}

/// Writes a part of the image under its hash, and describes it.
fn blob(layout: &Path, contents: &[u8], kind: &str) -> Result<Value> {
    let folder = layout.join("blobs/sha256");
    let unnamed = folder.join("unnamed");
    write(&unnamed, contents)?;
    let hash = output(Command::new("sha256sum").arg(&unnamed))?;
    let hash = hash.split_whitespace().next().context("sha256sum printed nothing")?;
    fs::rename(&unnamed, folder.join(hash))?;
    Ok(json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{hash}"),
        "size": contents.len(),
    }))
}
