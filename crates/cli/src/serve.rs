//! `rrvq serve`: the page of `web/` with a model of one's own, on this machine and for this machine.
//!
//! Everything is in memory before the first request, under names that are listed, so no request reaches a file. The page
//! itself is inside the program, where it was built in the repository. Its WebAssembly modules need another compiler target than the
//! program, so they are read from where `tools/web.sh` puts them, or are inside as well with the cargo feature `page`.

use crate::args::Serve;
use crate::terminal::line;
use rrvq::programs::Descent;
use rrvq::{Error, Result, Trained};
use serde_json::json;
use std::borrow::Cow;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A file of `web/`; none in a package of this crate, which comes without that folder (build.rs).
#[cfg(page_inside)]
macro_rules! inside {
    ($name:literal) => {
        Some(include_bytes!(concat!("../../../web/", $name)))
    };
}
#[cfg(not(page_inside))]
macro_rules! inside {
    ($name:literal) => {
        None
    };
}

/// A page's text, by the name it is asked for.
macro_rules! page {
    ($($name:literal),* $(,)?) => {
        [$(($name, inside!($name))),*]
    };
}

static PAGE: [(&str, Option<&[u8]>); 11] = page![
    "index.html",
    "style.css",
    "js/drops.js",
    "js/engine.js",
    "js/files.js",
    "js/link.js",
    "js/main.js",
    "js/maps.js",
    "js/paint.js",
    "js/plan.js",
    "js/worker.js",
];

const MODULES: [&str; 2] = ["rrvq.wasm", "rrvq-simd.wasm"];

/// Bytes of a request's first lines; ours have a few hundred.
const LONGEST_REQUEST: usize = 16 * 1024;
/// How long a request may take to arrive, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that are answered at once.
const MOST_REQUESTS: usize = 32;

/// What can be asked for: name, kind, bytes.
type Files = Vec<(String, &'static str, Cow<'static, [u8]>)>;

pub fn serve(args: &Serve) -> Result<()> {
    let files = gather(args)?;
    let address = (Ipv4Addr::LOCALHOST, args.port);
    let listener = TcpListener::bind(address).map_err(|error| {
        Error::new(format!(
            "cannot listen on port {}: {error}; choose another one with --port, 0 for any that is free",
            args.port
        ))
    })?;
    let port = listener
        .local_addr()
        .map_err(|error| Error::new(format!("cannot tell which port was taken: {error}")))?
        .port();
    line(format!(
        "http://127.0.0.1:{port}/ shows {}; Ctrl-C ends it",
        args.model.display()
    ));
    listen(&listener, port, Arc::new(files));
    Ok(())
}

fn listen(listener: &TcpListener, port: u16, files: Arc<Files>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        if open.fetch_add(1, Ordering::SeqCst) >= MOST_REQUESTS {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (files, open) = (files.clone(), open.clone());
        let work = move || {
            // A visitor that goes away is no matter of ours.
            let _ = respond(stream, port, &files);
            open.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().spawn(work).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn gather(args: &Serve) -> Result<Files> {
    let model = Trained::open(&args.model)?;
    // Says now what the page would say later: some models have no codes.
    Descent::new(model.device(), model.model(), model.theta())?;
    let packed = model.pack()?;
    let name = args.model.file_name().unwrap_or(args.model.as_os_str());
    let name = name.to_string_lossy();
    let name = name.strip_suffix(".safetensors").unwrap_or(&name);
    let listing = json!({"name": name, "file": "model.safetensors"}).to_string();
    let mut files = Files::new();
    for (name, inside) in PAGE {
        let bytes = match inside {
            Some(bytes) => Cow::Borrowed(bytes),
            None => built(&args.modules, name)?,
        };
        files.push((name.into(), kind(name), bytes));
    }
    for name in MODULES {
        files.push((name.into(), kind(name), module(&args.modules, name)?));
    }
    files.push((
        "model.json".into(),
        kind("model.json"),
        listing.into_bytes().into(),
    ));
    files.push((
        "model.safetensors".into(),
        kind("model.safetensors"),
        packed.into(),
    ));
    Ok(files)
}

#[cfg(feature = "page")]
fn module(_: &Path, name: &str) -> Result<Cow<'static, [u8]>> {
    static BUILT: [&[u8]; 2] = [
        include_bytes!("../../../web/dist/rrvq.wasm"),
        include_bytes!("../../../web/dist/rrvq-simd.wasm"),
    ];
    let at = MODULES.iter().position(|module| *module == name);
    at.map(|at| Cow::Borrowed(BUILT[at]))
        .ok_or_else(|| Error::new(format!("there is no module {name}")))
}

#[cfg(not(feature = "page"))]
fn module(folder: &Path, name: &str) -> Result<Cow<'static, [u8]>> {
    built(folder, name)
}

/// A file of what `tools/web.sh build` made.
fn built(folder: &Path, name: &str) -> Result<Cow<'static, [u8]>> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(Error::new(format!(
            "{}; build the page with `tools/web.sh build` in the repository, or say where they are with --modules DIR",
            Error::io("read", path, error)
        ))),
    }
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// The first lines of a request, as far as they are needed.
fn head(stream: &mut TcpStream) -> std::io::Result<std::result::Result<String, &'static str>> {
    let (begun, mut bytes, mut part) = (Instant::now(), Vec::new(), [0; 1024]);
    loop {
        let read = stream.read(&mut part)?;
        bytes.extend_from_slice(&part[..read]);
        if bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(String::from_utf8(bytes).map_err(|_| "400 Bad Request"));
        }
        if bytes.len() > LONGEST_REQUEST {
            return Ok(Err("431 Request Header Fields Too Large"));
        }
        if read == 0 || begun.elapsed() > PATIENCE {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// Which file a request is for, or why it gets none.
fn wanted<'a>(
    head: &str,
    port: u16,
    files: &'a Files,
) -> std::result::Result<&'a (String, &'static str, Cow<'static, [u8]>), &'static str> {
    let mut lines = head.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = first[..] else {
        return Err("400 Bad Request");
    };
    if !version.starts_with("HTTP/1.") {
        return Err("505 HTTP Version Not Supported");
    }
    if method != "GET" && method != "HEAD" {
        return Err("405 Method Not Allowed");
    }
    // Another name that leads here is somebody else's page reaching for this one.
    let mut hosts = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let ours = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}"));
    let host = hosts.next().map(|(_, host)| host.trim());
    if hosts.next().is_some() || !host.is_some_and(|host| ours.iter().any(|our| our == host)) {
        return Err("403 Forbidden");
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let name = match path {
        "/" => "index.html",
        _ => path.strip_prefix('/').unwrap_or_default(),
    };
    let found = files.iter().find(|(known, ..)| known == name);
    found.ok_or("404 Not Found")
}

fn respond(mut stream: TcpStream, port: u16, files: &Files) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = head(&mut stream)?;
    let found = head.as_deref().map_err(|why| *why);
    let answer = found.and_then(|head| wanted(head, port, files));
    let (status, kind, bytes): (&str, &str, &[u8]) = match answer {
        Ok((_, kind, bytes)) => ("200 OK", kind, bytes),
        Err(status) => (status, "text/plain", status.as_bytes()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-cache\r\n\
         X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' blob: data:\r\n\
         {}\r\n",
        bytes.len(),
        match status.starts_with("405") {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        }
    )?;
    if !head.is_ok_and(|head| head.starts_with("HEAD ")) {
        stream.write_all(bytes)?;
    }
    // Closing before the rest of a request has been read would take the answer away with it.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut rest = stream.take(LONGEST_REQUEST as u64);
    std::io::copy(&mut rest, &mut std::io::sink()).map(drop)
}
