//! Downloads against a server of our own: whole, resumed, cut short, wrong, missing, and with nobody there.
//!
//! Where there is no `curl`, the tests say so and pass.

use rrvq_data::checksums::Remote;
use rrvq_data::fetch::{Outcome, fetch};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What the server has, and how it behaves.
#[derive(Clone, Copy)]
enum Manner {
    /// Gives parts of the file to those who ask.
    Whole,
    /// Always gives all of it.
    WithoutParts,
    /// Promises all of it and stops in the middle.
    BreakingOff,
    /// Has no such file.
    Empty,
}

const LEN: usize = 300_000;

fn content() -> Vec<u8> {
    (0..LEN as u32)
        .map(|i| (i.wrapping_mul(i) >> 7) as u8)
        .collect()
}
/// The MD5 of the content, by `md5sum`.
const SUM: &str = "80681a347dd84e045afa0fe1f9efe49e";

struct Server {
    address: String,
    /// The parts that were asked for: where each began.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Server {
    fn start(manner: Manner) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is no failure of the server.
                let _ = answer(stream, manner, &noted);
            }
        });
        Server { address, asked }
    }

    fn remote(&self) -> Remote {
        Remote {
            name: "set.bin",
            addresses: vec![format!("{}/set.bin", self.address)],
            bytes: LEN as u64,
            md5: SUM,
        }
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(stream: TcpStream, manner: Manner, asked: &Mutex<Vec<usize>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut from = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
            from = range.split('-').next().unwrap().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    asked.lock().unwrap().push(from);
    let mut stream = reader.into_inner();
    let content = content();
    let ok = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n");
    let head = match manner {
        Manner::Empty => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n".into(),
        Manner::Whole if from >= LEN => {
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n".into()
        }
        Manner::Whole if from > 0 => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{LEN}\r\n",
            LEN - from,
            LEN - 1
        ),
        _ => ok,
    };
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    match manner {
        Manner::Whole if from < LEN => stream.write_all(&content[from..]),
        Manner::WithoutParts => stream.write_all(&content),
        Manner::BreakingOff => stream.write_all(&content[..LEN / 3]),
        _ => Ok(()),
    }
}

/// A fresh folder, and nothing if there is no `curl`.
fn folder(name: &str) -> Option<PathBuf> {
    if std::process::Command::new("curl")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: there is no curl");
        return None;
    }
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fetch-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    Some(dir)
}

#[test]
fn a_file_is_fetched_once_and_known_again() {
    let Some(dir) = folder("whole") else { return };
    let server = Server::start(Manner::Whole);
    let mut last = (0, 0);
    let outcome = fetch(&server.remote(), &dir.join("new"), &mut |done, all| {
        last = (done, all)
    });
    assert_eq!(outcome, Ok(Outcome::Fetched { resumed_at: 0 }));
    assert_eq!(last, (LEN as u64, LEN as u64));
    assert_eq!(std::fs::read(dir.join("new/set.bin")).unwrap(), content());
    assert!(!dir.join("new/set.bin.part").exists());
    let again = fetch(&server.remote(), &dir.join("new"), &mut |_, _| {});
    assert_eq!(again, Ok(Outcome::There));
    assert_eq!(server.asked(), [0], "asked once");
}

#[test]
fn what_is_there_is_not_asked_for_again() {
    let Some(dir) = folder("resumed") else { return };
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("set.bin.part"), &content()[..100_000]).unwrap();
    let server = Server::start(Manner::Whole);
    let outcome = fetch(&server.remote(), &dir, &mut |_, _| {});
    let resumed_at = 100_000;
    assert_eq!(outcome, Ok(Outcome::Fetched { resumed_at }));
    assert_eq!(server.asked(), [100_000]);
    assert_eq!(std::fs::read(dir.join("set.bin")).unwrap(), content());
    // All of it came the last time, and the program ended before it could say so.
    std::fs::rename(dir.join("set.bin"), dir.join("set.bin.part")).unwrap();
    assert!(fetch(&server.remote(), &dir, &mut |_, _| {}).is_ok());
    assert_eq!(server.asked(), [100_000], "nothing more was asked for");
}

#[test]
fn a_server_that_gives_no_parts_is_asked_for_the_whole() {
    for (manner, already) in [(Manner::WithoutParts, 1000), (Manner::Whole, LEN + 5)] {
        let Some(dir) = folder(&format!("parts-{already}")) else {
            return;
        };
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("set.bin.part"), vec![7; already]).unwrap();
        let server = Server::start(manner);
        let outcome = fetch(&server.remote(), &dir, &mut |_, _| {});
        assert_eq!(outcome, Ok(Outcome::Fetched { resumed_at: 0 }));
        assert_eq!(std::fs::read(dir.join("set.bin")).unwrap(), content());
    }
}

#[test]
fn a_transfer_that_breaks_off_keeps_what_came() {
    let Some(dir) = folder("broken") else { return };
    let broken = Server::start(Manner::BreakingOff);
    let said = fetch(&broken.remote(), &dir, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(said.contains("100000 of 300000 bytes are kept"), "{said}");
    let whole = Server::start(Manner::Whole);
    let resumed_at = LEN as u64 / 3;
    let outcome = fetch(&whole.remote(), &dir, &mut |_, _| {});
    assert_eq!(outcome, Ok(Outcome::Fetched { resumed_at }));
}

#[test]
fn a_wrong_file_is_put_aside_and_not_used() {
    let Some(dir) = folder("wrong") else { return };
    let server = Server::start(Manner::Whole);
    let mut remote = server.remote();
    remote.md5 = "00000000000000000000000000000000";
    let said = fetch(&remote, &dir, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(
        said.contains(SUM) && said.contains("set.bin.wrong"),
        "{said}"
    );
    assert!(!dir.join("set.bin").exists() && !dir.join("set.bin.part").exists());
    assert_eq!(std::fs::read(dir.join("set.bin.wrong")).unwrap(), content());
    std::fs::write(dir.join("set.bin"), "mine").unwrap();
    let said = fetch(&server.remote(), &dir, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(said.contains("is not the original"), "{said}");
    assert_eq!(std::fs::read(dir.join("set.bin")).unwrap(), b"mine");
}

#[test]
fn a_place_without_the_file_or_without_a_network_is_said_and_the_next_is_asked() {
    let Some(dir) = folder("nowhere") else { return };
    let empty = Server::start(Manner::Empty);
    let said = fetch(&empty.remote(), &dir, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(said.contains("set.bin: ") && said.contains("404"), "{said}");
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/set.bin", listener.local_addr().unwrap())
    };
    let mut remote = empty.remote();
    remote.addresses = vec![nobody];
    let said = fetch(&remote, &dir, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("no connection") && said.contains("is the network there?"),
        "{said}"
    );
    let whole = Server::start(Manner::Whole);
    remote.addresses.extend(empty.remote().addresses);
    remote.addresses.extend(whole.remote().addresses);
    assert!(fetch(&remote, &dir, &mut |_, _| {}).is_ok());
}
