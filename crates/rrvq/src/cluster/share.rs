//! Work in pieces that do not depend on each other, shared by processes.

use crate::error::{Error, Result};
use rrvq_tensor::Collective;

/// What is made of a piece, as it goes from process to process.
pub trait Made: Sized {
    /// To be sent.
    fn to_bytes(self) -> Result<Vec<u8>>;
    /// As it was sent.
    fn from_bytes(bytes: &[u8]) -> Result<Self>;
}

impl Made for Vec<u8> {
    fn to_bytes(self) -> Result<Vec<u8>> {
        Ok(self)
    }
    fn from_bytes(bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

/// What `work` makes of the pieces 0, 1, …, in their order. Processes take turns, and each gets what all have made; a single
/// one does everything.
pub fn shared<T: Made>(
    together: Option<&dyn Collective>,
    pieces: usize,
    mut work: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<T>> {
    let Some(together) = together else {
        return (0..pieces).map(work).collect();
    };
    let (rank, world) = (together.rank(), together.world());
    let mut mine = Vec::new();
    for piece in (rank..pieces).step_by(world) {
        let made = work(piece)?.to_bytes()?;
        mine.extend((made.len() as u64).to_le_bytes());
        mine.extend(made);
    }
    let all = together.gather(&mine)?;
    let mut left: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    (0..pieces)
        .map(|piece| {
            let of = piece % world;
            let made = first(&mut left[of]).ok_or_else(|| {
                Error::new(format!(
                    "rank {of} sent less than its share of {pieces} pieces; start all processes with the same arguments"
                ))
            })?;
            T::from_bytes(made)
        })
        .collect()
}

/// Takes the first piece off what a process sent.
fn first<'a>(left: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = left.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (made, rest) = rest.split_at_checked(len)?;
    *left = rest;
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// One of several processes, the others of which have sent what is here.
    #[derive(Debug)]
    struct One {
        rank: usize,
        others: Mutex<Vec<Vec<u8>>>,
    }

    impl Collective for One {
        fn rank(&self) -> usize {
            self.rank
        }
        fn world(&self) -> usize {
            3
        }
        fn gather(&self, mine: &[u8]) -> rrvq_tensor::Result<Vec<Vec<u8>>> {
            let mut all = self.others.lock().unwrap();
            all[self.rank] = mine.to_vec();
            Ok(all.clone())
        }
        fn exchange(&self, _: &[u8]) -> rrvq_tensor::Result<Vec<u8>> {
            unreachable!("nothing is exchanged")
        }
    }

    fn piece(number: usize) -> Result<Vec<u8>> {
        Ok(vec![number as u8; number])
    }

    #[test]
    fn pieces_come_in_order_whoever_made_them() {
        let alone = shared(None, 8, piece).unwrap();
        let mut others = vec![Vec::new(); 3];
        for rank in 0..3 {
            let one = One {
                rank,
                others: Mutex::new(others.clone()),
            };
            // The first two find the pieces of those after them missing.
            let found = shared(Some(&one), 8, piece);
            assert_eq!(found.ok(), (rank == 2).then(|| alone.clone()));
            others = one.others.into_inner().unwrap();
        }
    }

    #[test]
    fn a_piece_cut_short_is_an_error() {
        let one = One {
            rank: 0,
            others: Mutex::new(vec![
                Vec::new(),
                vec![9, 0, 0, 0, 0, 0, 0, 0, 1],
                Vec::new(),
            ]),
        };
        let said = shared(Some(&one), 2, piece).unwrap_err().to_string();
        assert!(said.contains("rank 1 sent less"), "{said}");
    }
}
