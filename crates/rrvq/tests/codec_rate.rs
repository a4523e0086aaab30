//! bits
use rrvq::codec::chunk::{self};
use rrvq::codec::networks::Networks;
use rrvq::codec::tiles::Tiling;
use rrvq::run::Run;
use rrvq::train::checkpoint::load_model;

#[test]
fn try_it() {
    let Ok(run) = std::env::var("RUN_DIR") else {
        return;
    };
    let (config, model, store, _) = load_model(&Run::open(run).unwrap()).unwrap();
    let data = rrvq::data::open_for(&config).unwrap();
    let side = config.model.size;
    let n = 256;
    let tiling = Tiling {
        width: side,
        height: side,
        channels: 3,
        side,
    };
    let mut bytes = vec![0; model.image_len()];
    let images: Vec<Vec<u8>> = (0..n)
        .map(|i| {
            data.read(rrvq::data::Split::Test, i, &mut bytes);
            bytes.clone()
        })
        .collect();
    let tiles: Vec<_> = images.iter().map(|i| tiling.cut(i, 0, 3)).collect();
    let mut networks = Networks::new(&model, store.get("theta")).unwrap();
    for _ in 0..2 {
        let t = std::time::Instant::now();
        let written = chunk::write(&mut networks, &tiles).unwrap();
        let total = t.elapsed();
        let bpd = written.stack.len() as f64 * 8.0 / (n * side * side * 3) as f64;
        let told =
            written.costs.iter().sum::<i64>() as f64 / 65536.0 / (n * side * side * 3) as f64;
        println!(
            "{bpd} {told} {:?} {total:?} {:?} {:.3} MB/s",
            written.back,
            written.times,
            (n * side * side * 3) as f64 / total.as_secs_f64() / 1e6
        );
        let t = std::time::Instant::now();
        let extents: Vec<_> = tiles.iter().map(|t| t.extent).collect();
        let (back, times) =
            chunk::read(&mut networks, &extents, &written.back, written.stack).unwrap();
        println!("read {:?} {times:?}", t.elapsed());
        assert!(back == images);
    }
}
