//! Who is alive, and the end of all when one is not.
//!
//! Every process tells the first one every two seconds that it lives and how many exchanges it has begun, and the first
//! one tells all others. A connection that closes without a farewell is a process that died; one that is silent for
//! [`SILENCE`] is a machine that is gone or a process that was stopped; a process that lives but begins no exchange that
//! others wait in for [`STUCK`] hangs. Each of them ends all processes with exit code 2, and the first process says whose
//! fault it was. Checkpoints are written under another name and renamed, so the last one is whole.

use super::launch::Launch;
use super::mpi::Mpi;
use super::tcp::{self, Purpose};
use crate::error::{Error, Result};
use rrvq_tensor::Collective;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a process may say nothing.
const SILENCE: Duration = Duration::from_secs(20);
/// How long all others may wait for one that lives.
const STUCK: Duration = Duration::from_secs(600);
const BEAT: Duration = Duration::from_secs(2);
/// How long it may take until a sentence of the watcher's is said.
pub(super) const SAID: Duration = Duration::from_secs(25);

/// What is said on a watcher's connection: a byte, a number, and as many bytes of text.
const ALIVE: u8 = 0;
const FAREWELL: u8 = 1;
const FAILED: u8 = 2;

/// Watches the others, from threads of its own.
#[derive(Debug)]
pub(super) struct Watcher {
    rank: usize,
    /// The other end of each connection, and what is sent there.
    peers: Vec<(usize, Mutex<TcpStream>)>,
    /// Exchanges begun here, and last heard of each peer.
    begun: AtomicU64,
    heard: Vec<AtomicU64>,
    /// Peers that have said farewell.
    gone: AtomicUsize,
    finished: AtomicBool,
    /// Set by whoever says the last sentence.
    ending: AtomicBool,
}

impl Watcher {
    /// Begins to watch; `controls` are connections and the ranks at their other ends.
    pub fn start(rank: usize, controls: Vec<(usize, TcpStream)>) -> Arc<Watcher> {
        let listening: Vec<_> = controls
            .iter()
            .map(|(_, stream)| stream.try_clone())
            .collect();
        let watcher = Arc::new(Watcher {
            rank,
            heard: controls.iter().map(|_| AtomicU64::new(0)).collect(),
            peers: controls
                .into_iter()
                .map(|(r, s)| (r, Mutex::new(s)))
                .collect(),
            begun: AtomicU64::new(0),
            gone: AtomicUsize::new(0),
            finished: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        for (peer, stream) in listening.into_iter().enumerate() {
            let watcher = watcher.clone();
            std::thread::spawn(move || match stream {
                Ok(stream) => watcher.listen(peer, stream),
                Err(error) => watcher.lost(peer, &error.to_string()),
            });
        }
        let beating = watcher.clone();
        std::thread::spawn(move || beating.beat());
        watcher
    }

    /// The same where processes already talk through MPI: it hands round where the first one listens.
    pub fn through(mpi: &Mpi, launch: &Launch) -> Result<Arc<Watcher>> {
        let trouble = |error: io::Error| {
            Error::new(format!("rank 0 cannot listen for the other ranks: {error}"))
        };
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim().to_string();
        let listener = match launch.rank {
            0 => Some(TcpListener::bind(("0.0.0.0", 0)).map_err(trouble)?),
            _ => None,
        };
        let port = match &listener {
            Some(listener) => listener.local_addr().map_err(trouble)?.port(),
            None => 0,
        };
        let all = mpi.gather(format!("{port} {name}").as_bytes())?;
        let first = String::from_utf8_lossy(&all[0]).into_owned();
        let (port, host) = first.split_once(' ').unwrap_or(("0", ""));
        let host = if host == name { "127.0.0.1" } else { host };
        let controls = match &listener {
            Some(listener) => tcp::accept(listener, mpi.world(), &[Purpose::Control])?,
            None => {
                let address = (host, port.parse().unwrap_or(0));
                let stream = tcp::connect(address, Purpose::Control, launch.rank, mpi.world())?;
                vec![(0, stream)]
            }
        };
        Ok(Watcher::start(launch.rank, controls))
    }

    /// An exchange begins here.
    pub fn count(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn send(&self, peer: usize, kind: u8, text: &str) -> io::Result<()> {
        let number = match kind {
            ALIVE => self.begun.load(Ordering::Relaxed),
            _ => text.len() as u64,
        };
        let mut message = vec![kind];
        message.extend_from_slice(&number.to_le_bytes());
        message.extend_from_slice(text.as_bytes());
        let mut stream = self.peers[peer].1.lock().unwrap_or_else(|e| e.into_inner());
        stream.write_all(&message)
    }

    /// Tells all that this process lives, until it has finished.
    fn beat(&self) {
        let mut behind: Option<(usize, u64, Instant)> = None;
        while !self.finished.load(Ordering::Relaxed) {
            for peer in 0..self.peers.len() {
                // Whoever listens notices a broken connection.
                let _ = self.send(peer, ALIVE, "");
            }
            behind = self.look_for_stuck(behind);
            std::thread::sleep(BEAT);
        }
    }

    /// The first process looks for one that does not begin what others wait in: who, how far, since when.
    fn look_for_stuck(
        &self,
        before: Option<(usize, u64, Instant)>,
    ) -> Option<(usize, u64, Instant)> {
        if self.rank != 0 {
            return None;
        }
        let own = (0, self.begun.load(Ordering::Relaxed));
        let heard = self.heard.iter().zip(&self.peers);
        let others = heard.map(|(begun, (rank, _))| (*rank, begun.load(Ordering::Relaxed)));
        let all: Vec<(usize, u64)> = others.chain([own]).collect();
        let most = all.iter().map(|(_, begun)| *begun).max()?;
        let (rank, begun) = *all.iter().min_by_key(|(_, begun)| *begun)?;
        match before {
            _ if begun == most => None,
            Some((who, at, since)) if (who, at) == (rank, begun) => {
                if since.elapsed() > STUCK {
                    let minutes = STUCK.as_secs() / 60;
                    self.end(&format!(
                        "rank {rank} hangs: the others have waited for it for {minutes} minutes; the last checkpoint is whole, so go \
                         on from it with --resume"
                    ));
                }
                before
            }
            _ => Some((rank, begun, Instant::now())),
        }
    }

    /// Hears one peer until it says farewell.
    fn listen(&self, peer: usize, mut stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(SILENCE));
        loop {
            let mut head = [0; 9];
            if let Err(error) = stream.read_exact(&mut head) {
                let silent = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                return match silent.contains(&error.kind()) {
                    true => self.lost(
                        peer,
                        &format!("has said nothing for {} s", SILENCE.as_secs()),
                    ),
                    false => self.lost(peer, "has ended"),
                };
            }
            let number = u64::from_le_bytes(head[1..].try_into().unwrap_or_default());
            match head[0] {
                ALIVE => self.heard[peer].store(number, Ordering::Relaxed),
                FAREWELL => {
                    self.gone.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                _ => {
                    let mut text = String::new();
                    let _ = stream.take(number).read_to_string(&mut text);
                    return self.told(peer, &text);
                }
            }
        }
    }

    /// A peer is gone without a farewell.
    fn lost(&self, peer: usize, how: &str) {
        let rank = self.peers[peer].0;
        self.end(&format!(
            "rank {rank} {how}, so all ranks end; the last checkpoint is whole, so go on from it with --resume"
        ));
    }

    /// A peer has failed and says why.
    fn told(&self, peer: usize, text: &str) {
        let from = self.peers[peer].0;
        if self.rank != 0 {
            // The first process has said it.
            self.leave();
        }
        // What ends all of them at once, such as a loss that is not finite, is said by this one itself.
        std::thread::sleep(Duration::from_millis(500));
        self.end(&format!("rank {from}: {text}"));
    }

    /// Ends all processes; this one, if it is the first, says the sentence.
    pub fn fail(&self, sentence: &str) -> ! {
        if self.rank == 0 {
            self.end(sentence);
        } else if self.send(0, FAILED, sentence).is_ok() {
            // The first process answers by ending all; it has the last word.
            std::thread::sleep(Duration::from_secs(5));
        }
        self.leave()
    }

    /// Says the last sentence, unless somebody already does, and ends this process and through it all others.
    fn end(&self, sentence: &str) {
        if self.finished.load(Ordering::SeqCst) {
            return;
        }
        if self.ending.swap(true, Ordering::SeqCst) {
            loop {
                std::thread::park();
            }
        }
        // One of those that are left speaks where the first process is gone.
        if self.rank <= 1 {
            let _ = writeln!(io::stderr(), "rrvq: {sentence}");
        }
        if self.rank == 0 {
            for peer in 0..self.peers.len() {
                let _ = self.send(peer, FAILED, sentence);
            }
        }
        self.leave()
    }

    fn leave(&self) -> ! {
        rrvq_tensor::abort_all();
        std::process::exit(2)
    }

    /// Says farewell and waits for the others'.
    pub fn finish(&self) {
        let end = Instant::now() + SILENCE;
        if self.rank == 0 {
            // The others first: they end when they have heard the first one's.
            self.wait_for_farewells(end);
        }
        self.finished.store(true, Ordering::SeqCst);
        for peer in 0..self.peers.len() {
            let _ = self.send(peer, FAREWELL, "");
        }
        if self.rank != 0 {
            self.wait_for_farewells(end);
        }
    }

    fn wait_for_farewells(&self, end: Instant) {
        while self.gone.load(Ordering::SeqCst) < self.peers.len() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
