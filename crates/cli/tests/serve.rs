//! `rrvq serve`: what is listed is handed out, to this machine alone, and nothing else is.

mod common;
use common::Scratch;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(scratch: &Scratch, model: &str) -> Server {
        for name in ["rrvq.wasm", "rrvq-simd.wasm"] {
            scratch.write(name, name);
        }
        let mut child = scratch.start(&["serve", model, "--port", "0", "--modules", "."]);
        let mut first = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut first).unwrap();
        let port = first.split(['/', ':']).find_map(|part| part.parse().ok());
        Server {
            port: port.unwrap_or_else(|| panic!("no port in {first:?}")),
            child,
        }
    }

    /// Sends bytes as they are; gives the first line, the other lines and the body.
    fn send(&self, request: &[u8]) -> (String, String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let (first, rest) = head.split_once("\r\n").unwrap();
        (first.into(), rest.into(), answer[end + 4..].to_vec())
    }

    fn get(&self, path: &str) -> (String, String, Vec<u8>) {
        let port = self.port;
        self.send(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_its_modules_and_the_packed_model_are_handed_out() {
    let scratch = Scratch::new();
    scratch.trained("own");
    scratch
        .run(&["pack", "own", "--out", "packed.safetensors"])
        .done();
    let server = Server::start(&scratch, "own");
    let (status, head, body) = server.get("/");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(head.contains("text/html") && head.contains("Content-Security-Policy"));
    let page = String::from_utf8(body).unwrap();
    assert!(page.contains("<title>rrvq</title>"));
    // Whatever the page and its scripts name is there.
    let mut names = vec!["/style.css".to_string(), "/js/worker.js".to_string()];
    let mut scripts = vec!["main.js".to_string()];
    while let Some(script) = scripts.pop() {
        let name = format!("/js/{script}");
        let text = String::from_utf8(server.get(&name).2).unwrap();
        for part in text.split("from \"./").skip(1) {
            scripts.push(part.split('"').next().unwrap().to_string());
        }
        names.push(name);
    }
    assert!(names.len() > 8, "{names:?}");
    for name in &names {
        assert_eq!(server.get(name).0, "HTTP/1.1 200 OK", "{name}");
    }
    let (_, head, body) = server.get("/rrvq-simd.wasm?x=1");
    assert!(head.contains("application/wasm"));
    assert_eq!(body, b"rrvq-simd.wasm");
    let packed = server.get("/model.safetensors").2;
    assert!(packed == scratch.read("packed.safetensors"));
    let listing: serde_json::Value = serde_json::from_slice(&server.get("/model.json").2).unwrap();
    assert_eq!(listing["name"], "own");
    let port = server.port;
    let request = format!("HEAD / HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n");
    let (status, head, body) = server.send(request.as_bytes());
    assert!(status.ends_with("200 OK") && body.is_empty());
    assert!(head.contains(&format!("Content-Length: {}", page.len())));
}

#[test]
fn nothing_else_is() {
    let scratch = Scratch::new();
    scratch.trained("own");
    let server = Server::start(&scratch, "own");
    let port = server.port;
    for path in [
        "/own/config.toml",
        "/../own/config.toml",
        "/js/../../own/config.toml",
        "/%2e%2e/own/config.toml",
        "//etc/passwd",
        "index.html",
    ] {
        assert_eq!(server.get(path).0, "HTTP/1.1 404 Not Found", "{path}");
    }
    let says = |request: String, status: &str| {
        let (first, ..) = server.send(request.as_bytes());
        assert_eq!(first, format!("HTTP/1.1 {status}"), "{request:.80}");
    };
    let host = format!("Host: 127.0.0.1:{port}\r\n\r\n");
    for method in ["POST", "PUT", "DELETE"] {
        says(
            format!("{method} / HTTP/1.1\r\n{host}"),
            "405 Method Not Allowed",
        );
    }
    says(
        "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".into(),
        "403 Forbidden",
    );
    says("GET / HTTP/1.1\r\n\r\n".into(), "403 Forbidden");
    says(format!("GET /\r\n{host}"), "400 Bad Request");
    says(
        format!("GET / SPDY/3\r\n{host}"),
        "505 HTTP Version Not Supported",
    );
    let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(17 * 1024));
    says(long, "431 Request Header Fields Too Large");
    assert_eq!(server.get("/").0, "HTTP/1.1 200 OK", "it still answers");
}

#[test]
fn what_is_missing_is_said_before_anything_listens() {
    let scratch = Scratch::new();
    let said = scratch.run(&["serve", "nowhere"]);
    said.refused(&["nowhere", "built-in"]);
    let said = scratch.run(&["serve", "tiles-2", "--port", "0"]);
    said.refused(&["web/dist/rrvq.wasm", "tools/web.sh", "--modules"]);
}
