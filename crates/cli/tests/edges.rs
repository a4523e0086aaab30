//! Where the program meets the shell: pipes, files that are there already, failures as JSON, full disks, odd names.

mod common;
use common::{Said, Scratch};
use image::RgbImage;
use std::io::Write;
use std::process::Stdio;

fn picture(scratch: &Scratch, name: &str) {
    let samples = (0..40 * 30 * 3).map(|i: u32| (i / 7) as u8 ^ (i * i % 5) as u8);
    let image = RgbImage::from_raw(40, 30, samples.collect()).unwrap();
    image.save(scratch.path(name)).unwrap();
}

/// The program with bytes on its standard input; gives what it wrote to standard output as well.
fn fed(scratch: &Scratch, args: &[&str], input: &[u8]) -> (Vec<u8>, Option<i32>, String) {
    let mut command = scratch.command(args);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    (ended.stdout, ended.status.code(), said)
}

#[test]
fn images_go_through_pipes() {
    let scratch = Scratch::new();
    picture(&scratch, "a.png");
    let original = scratch.read("a.png");
    let samples = |png: &[u8]| image::load_from_memory(png).unwrap().into_rgb8();
    for lossy in [&[][..], &["--lossy"]] {
        let args = [&["compress", "-", "-o", "-"], lossy].concat();
        let (file, code, said) = fed(&scratch, &args, &original);
        assert!(code == Some(0) && said.contains("times"), "{said}");
        let (list, code, _) = fed(&scratch, &["codec", "list", "-"], &file);
        let list = String::from_utf8(list).unwrap();
        assert!(
            code == Some(0) && list.contains("stdin") && list.contains("40×30"),
            "{list}"
        );
        let (png, code, said) = fed(&scratch, &["decompress", "-", "-o", "-"], &file);
        assert_eq!(code, Some(0), "{said}");
        let same = samples(&png) == samples(&original);
        assert!(same || !lossy.is_empty());
        // Quietly, nothing but the bytes.
        let args = [&["compress", "-", "-o", "-", "--quiet"], lossy].concat();
        let (again, _, said) = fed(&scratch, &args, &original);
        assert!(again == file && said.is_empty(), "{said}");
    }
    // A whole file is there, or a sentence is.
    let (out, code, said) = fed(&scratch, &["compress", "-", "-o", "-"], &original[..90]);
    assert!(out.is_empty() && code == Some(2), "{said}");
    scratch
        .run(&["compress", "a.png", "a.png", "-o", "two.rrvq"])
        .done();
    let two = ["decompress", "two.rrvq", "-o", "-"];
    scratch.run(&two).refused(&["2 images", "--out"]);
    let twice = ["compress", "-", "-", "-o", "x.rrvq"];
    scratch
        .run(&twice)
        .refused(&["standard input can be read once"]);
    assert!(!scratch.path("-").exists());
}

#[test]
fn lists_say_what_is_inside() {
    let scratch = Scratch::new();
    scratch.trained("run");
    picture(&scratch, "a.png");
    picture(&scratch, "b.png");
    scratch
        .run(&[
            "compress", "a.png", "b.png", "-o", "x.rrvq", "--model", "run",
        ])
        .done();
    // Without the model: nothing is decoded.
    let told = scratch.run(&["codec", "list", "x.rrvq", "--json"]).json();
    let names: Vec<&str> = told["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(told["bytes"], scratch.read("x.rrvq").len());
    scratch.write("no.rrvq", "text");
    scratch
        .run(&["codec", "list", "no.rrvq"])
        .refused(&["no.rrvq", "rrvq compress"]);
}

#[test]
fn sizes_are_compared_with_the_files_that_were_given() {
    let scratch = Scratch::new();
    let mut jpeg = Vec::new();
    let noise: Vec<u8> = (0..64 * 64 * 3u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 5)
        .encode(&noise, 64, 64, image::ExtendedColorType::Rgb8)
        .unwrap();
    scratch.write("small.jpg", &jpeg);
    let said = scratch
        .run(&["compress", "small.jpg", "-o", "x.rrvq"])
        .done();
    assert!(
        said.contains("times larger") && said.contains("raw samples"),
        "{said}"
    );
    let told = scratch
        .run(&["compress", "small.jpg", "-o", "y.rrvq", "--json"])
        .json();
    assert_eq!(told["input_bytes"], jpeg.len());
}

/// One rule for every command that writes a file.
#[test]
fn nothing_is_replaced_without_force() {
    let scratch = Scratch::new();
    scratch.trained("run");
    picture(&scratch, "a.png");
    scratch
        .run(&["compress", "a.png", "-o", "made.rrvq"])
        .done();
    scratch
        .run(&["codes", "run", "a.png", "--out", "made.safetensors"])
        .done();
    for args in [
        &["sample", "run", "--count", "1", "--out", "f.png"][..],
        &["reconstruct", "run", "a.png", "--out", "f.png"],
        &["report", "run", "--out", "f.png"],
        &["codes", "run", "a.png", "--out", "f.png.safetensors"],
        &["decode", "run", "made.safetensors", "--out", "f.png"],
        &["pack", "run", "--out", "f.png"],
        &["compress", "a.png", "--out", "f.png"],
        &["decompress", "made.rrvq", "--out", "folder"],
        &["codec", "eval", "run", "--images", "2", "--out", "page"],
        &["man", "--out", "pages"],
    ] {
        for file in [
            "f.png",
            "f.png.safetensors",
            "folder/a.png",
            "page/report.html",
            "pages/rrvq.1",
        ] {
            std::fs::create_dir_all(scratch.path(file).parent().unwrap()).unwrap();
            scratch.write(file, "mine");
        }
        let said = scratch.run(args);
        said.refused(&["is there already", "--force"]);
        let out = args.last().unwrap();
        for file in [
            "f.png",
            "f.png.safetensors",
            "folder/a.png",
            "page/report.html",
            "pages/rrvq.1",
        ] {
            assert_eq!(scratch.read(file), b"mine", "{out}: {file}");
        }
        scratch.run(&[args, &["--force"]].concat()).done();
    }
    // Neither a pipe nor a device is there already.
    let said = scratch.run(&["compress", "a.png", "--out", "/dev/null"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn failures_are_json_where_results_would_be() {
    let scratch = Scratch::new();
    for args in [
        &["compress", "none.png", "-o", "x.rrvq", "--json"][..],
        &["eval", "no-run", "--json"],
        &["codec", "list", "none.rrvq", "--json"],
        &["eval", "--json"],
    ] {
        let said = scratch.run(args);
        assert_eq!(said.code, Some(2), "{said:?}");
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let sentence = told["error"].as_str().unwrap();
        assert!(said.err.contains(sentence), "{said:?}");
    }
}

#[test]
fn quiet_and_verbose() {
    let scratch = Scratch::new();
    picture(&scratch, "a.png");
    let quiet = scratch.run(&["-q", "compress", "a.png", "-o", "x.rrvq"]);
    assert!(quiet.out.is_empty() && quiet.err.is_empty(), "{quiet:?}");
    let said = scratch.run(&["decompress", "x.rrvq", "-o", "out", "--verbose"]);
    assert!(
        said.err.contains("out/a.png: ") && said.err.contains(" s with "),
        "{said:?}"
    );
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--steps",
        "2",
        "--out",
        "run",
    ];
    assert_eq!(scratch.run(&[&train[..], &["--quiet"]].concat()).done(), "");
    // A result is not left out.
    let told = scratch
        .run(&["eval", "run", "--images", "4", "--quiet"])
        .done();
    assert!(told.contains("bits/dim"), "{told}");
    assert_eq!(scratch.run(&["presets", "-q", "-v"]).code, Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    let scratch = Scratch::new();
    for args in [
        "--help",
        "--version",
        "train --help",
        "presets",
        "completions bash",
    ] {
        let said = scratch.shell(&format!("$rrvq {args} > /dev/full"));
        assert_eq!(said.code, Some(2), "{args}: {said:?}");
        assert!(said.err.contains("the disk is full"), "{said:?}");
    }
}

#[test]
fn instructions_that_nobody_knows_are_refused() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["presets"]);
    command.env("RRVQ_SIMD", "bogus");
    let said = Said::from(command.output().unwrap());
    said.refused(&["RRVQ_SIMD", "bogus", "portable, avx2, avx512"]);
}

#[test]
fn a_preset_beside_resume_is_said_to_be_unused() {
    let scratch = Scratch::new();
    let train = [
        "train",
        "--preset",
        "tiny-swatches",
        "--out",
        "run",
        "--steps",
    ];
    scratch
        .run(&[&train[..], &["4", "--tensorboard"]].concat())
        .done();
    let said = scratch.run(&[&train[..], &["8", "--resume"]].concat());
    assert!(
        said.code == Some(0) && said.err.contains("--preset tiny-swatches is not used"),
        "{said:?}"
    );
    // What was watched with TensorBoard still is.
    let entries = std::fs::read_dir(scratch.path("run")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("events.")).count(), 2);
}

#[test]
fn a_failed_download_leaves_nothing_and_names_another_place() {
    let scratch = Scratch::new();
    let nowhere = format!("file://{}", scratch.path("nowhere").display());
    let said = scratch.run(&[
        "data",
        "fetch",
        "mnist",
        "--from",
        &nowhere,
        "--out",
        "new/folder",
    ]);
    said.refused(&["--from"]);
    assert!(!scratch.path("new").exists());
    // A folder that was there stays.
    std::fs::create_dir(scratch.path("mine")).unwrap();
    scratch
        .run(&[
            "data", "fetch", "mnist", "--from", &nowhere, "--out", "mine",
        ])
        .refused(&["--from"]);
    assert!(scratch.path("mine").exists());
}

#[test]
fn the_help_of_a_data_sets_name_lists_all() {
    let scratch = Scratch::new();
    let keys = scratch.run(&["presets", "--keys"]).done();
    let help = keys.split("data.name = ").nth(1).unwrap();
    let help = help.lines().nth(1).unwrap();
    let set = ["--set", "data.name=nonsense", "--out", "run"];
    let said = scratch.run(&[&["train", "--preset", "tiny-swatches"], &set[..]].concat());
    // The registry's own list, from the sentence about a name it does not have.
    let known = said.err.split("available: ").nth(1).unwrap();
    for name in known.trim().split(", ") {
        assert!(help.contains(name), "{name} is not in {help:?}");
    }
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_come_back() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    picture(&scratch, "a.png");
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9.png");
    let place = scratch.path("a.png").parent().unwrap().to_path_buf();
    std::fs::copy(scratch.path("a.png"), place.join(odd)).unwrap();
    for lossy in [&[][..], &["--lossy"]] {
        let mut command = scratch.command(&["compress", "-o", "x.rrvq", "--force"]);
        assert!(command.arg(odd).args(lossy).status().unwrap().success());
        scratch
            .run(&["decompress", "x.rrvq", "-o", "out", "--force"])
            .done();
        assert!(place.join("out").join(odd).exists());
        std::fs::remove_dir_all(place.join("out")).unwrap();
    }
}

/// The sentence is about permission, not about a file that is not there. Root may read everything, so another user asks.
#[cfg(unix)]
#[test]
fn permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("run")).unwrap();
    scratch.write("run/config.toml", "");
    let closed = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(scratch.path("run"), closed).unwrap();
    let mut command = scratch.command(&["info", "run"]);
    let root = std::fs::read_dir(scratch.path("run")).is_ok();
    if root {
        command.uid(65_534);
    }
    // Where another user cannot even reach the program, there is nothing to ask.
    let asked = command.output();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path("run"), open).unwrap();
    match asked {
        Err(error) => assert!(root && error.kind() == std::io::ErrorKind::PermissionDenied),
        Ok(said) => {
            let said = Said::from(said);
            said.refused(&["run/config.toml", "permission denied"]);
            assert!(!said.err.contains("built-in"), "{said:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn manual_pages_are_not_written_through_links() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pages")).unwrap();
    scratch.write("mine", "kept");
    std::os::unix::fs::symlink("../mine", scratch.path("pages/rrvq-train.1")).unwrap();
    let said = scratch.run(&["man", "--out", "pages", "--force"]);
    said.refused(&["pages/rrvq-train.1", "it is a link"]);
    assert_eq!(scratch.read("mine"), b"kept");
}
