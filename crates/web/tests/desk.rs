//! The questions of the page, asked without a browser.

use rrvq::picture::Picture;
use rrvq::{SampleOptions, Trained, models};
use rrvq_codec::{Image, compress};
use rrvq_web::{Desk, message, parts};
use serde_json::{Value, json};

const MODEL: &str = "tiles-2";

fn ask(desk: &mut Desk, question: Value, bytes: &[u8]) -> (Value, Vec<u8>) {
    let answer = desk.answer(&message(&question.to_string(), bytes));
    let (text, bytes) = parts(&answer).unwrap();
    (serde_json::from_str(text).unwrap(), bytes.to_vec())
}

fn open() -> (Desk, usize) {
    let mut desk = Desk::default();
    let bytes = models::find(MODEL).unwrap().bytes;
    let (told, _) = ask(&mut desk, json!({"ask": "open", "name": MODEL}), bytes);
    let layers = told["layers"].as_array().unwrap().len();
    (desk, layers)
}

fn draw(desk: &mut Desk, layers: &[Value]) -> (Value, Vec<u8>) {
    let (told, pixels) = ask(
        desk,
        json!({"ask": "draw", "plan": {"layers": layers}}),
        &[],
    );
    assert_eq!(told["error"], Value::Null);
    (told["codes"].clone(), pixels)
}

#[test]
fn a_drawn_picture_is_a_sample_and_a_change_holds_what_is_above() {
    let (mut desk, layers) = open();
    let plan = vec![json!({"seed": 3, "temperature": 0.8}); layers];
    let (codes, pixels) = draw(&mut desk, &plan);
    let options = SampleOptions {
        seed: 3,
        temperature: 0.8,
        ..SampleOptions::default()
    };
    let sample = Trained::open(MODEL).unwrap().sample(1, options).unwrap();
    let opaque = sample[0].pixels().chunks(3);
    let opaque: Vec<u8> = opaque.flat_map(|p| [p[0], p[1], p[2], 255]).collect();
    assert!(pixels == opaque);

    let middle = layers / 2;
    let mut changed = plan.clone();
    changed[middle]["redraw"] = json!([[5, 77]]);
    let (other, _) = draw(&mut desk, &changed);
    for layer in middle + 1..layers {
        assert_eq!(other[layer], codes[layer], "above the change");
    }
    let list = |value: &Value| value.as_array().unwrap().clone();
    let pairs = list(&other[middle]).into_iter().zip(list(&codes[middle]));
    for (at, (new, old)) in pairs.enumerate() {
        assert!(at == 5 || new == old, "position {at} of the layer");
    }
    // What was computed before does not show in what comes after.
    let (mut fresh, _) = open();
    assert_eq!(draw(&mut fresh, &changed), draw(&mut desk, &changed));
    assert_eq!(draw(&mut desk, &plan), (codes, pixels));
}

#[test]
fn the_prior_of_a_position_is_a_distribution_and_a_set_code_stays() {
    let (mut desk, layers) = open();
    let mut plan = vec![json!({"seed": 1, "temperature": 1.0}); layers];
    draw(&mut desk, &plan);
    let question = json!({"ask": "prior", "layer": 2, "position": 9, "most": 1000});
    let (told, _) = ask(&mut desk, question, &[]);
    let all = told["likeliest"].as_array().unwrap();
    let sum: f64 = all.iter().map(|pair| pair[1].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{sum}");
    assert!(all[0][1].as_f64() >= told["chance"].as_f64());
    plan[2]["set"] = json!([[9, all[1][0]]]);
    assert_eq!(draw(&mut desk, &plan).0[2][9], all[1][0]);
}

#[test]
fn images_become_codes_and_files_and_come_back() {
    let (mut desk, layers) = open();
    let image = Image::new(
        "i",
        32,
        32,
        (0..3072u32).map(|i| (i * i / 97) as u8).collect(),
    );
    let image = image.unwrap();
    let picture = Picture::new([32, 32, 3], image.colour.clone()).unwrap();
    let png = picture.to_png().unwrap();
    let (told, pixels) = ask(&mut desk, json!({"ask": "encode", "name": "i.png"}), &png);
    assert_eq!(pixels.len(), 32 * 32 * 4);
    assert_eq!(told["bits"].as_array().unwrap().len(), layers);
    let given: Vec<Value> = told["codes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| json!({"codes": c}))
        .collect();
    let (_, shown) = draw(&mut desk, &given);
    let trained = Trained::open(MODEL).unwrap();
    let back = trained.reconstruct(&[picture]).unwrap();
    assert!(
        shown
            .chunks(4)
            .zip(back[0].pixels().chunks(3))
            .all(|(a, b)| a[..3] == *b)
    );

    let question = json!({"ask": "compress", "name": "i.png", "drop": null});
    let (_, file) = ask(&mut desk, question, &png);
    assert!(file == compress(&trained, std::slice::from_ref(&image)).unwrap());
    let (told, back) = ask(
        &mut desk,
        json!({"ask": "decompress", "name": "i.rrvq"}),
        &file,
    );
    assert_eq!(told["images"][0]["name"], "i");
    assert!(Image::from_file("i.png".as_ref(), &back).unwrap() == image);
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence() {
    let says = |desk: &mut Desk, question: Value, bytes: &[u8], words: &str| {
        let (told, _) = ask(desk, question.clone(), bytes);
        let said = told["error"].as_str().unwrap_or_default();
        assert!(said.contains(words), "{question}: {told}");
    };
    let mut empty = Desk::default();
    says(
        &mut empty,
        json!({"ask": "encode", "name": "x"}),
        &[],
        "no model is open",
    );
    says(
        &mut empty,
        json!({"ask": "open", "name": "x"}),
        b"no",
        "x is not a packed model",
    );
    says(
        &mut empty,
        json!({"ask": "fly"}),
        &[],
        "cannot be understood",
    );
    assert!(parts(&[9, 0, 0, 0, 1]).is_err());
    let (mut desk, layers) = open();
    let question = json!({"ask": "decompress", "name": "x.rrvq"});
    says(&mut desk, question, b"no", "x.rrvq cannot be decompressed");
    says(
        &mut desk,
        json!({"ask": "encode", "name": "x.png"}),
        b"no",
        "cannot read x.png",
    );
    let plan =
        |layer: Value, count: usize| json!({"ask": "draw", "plan": {"layers": vec![layer; count]}});
    says(
        &mut desk,
        plan(json!({}), layers - 1),
        &[],
        "it has 8 layers",
    );
    says(
        &mut desk,
        plan(json!({"set": [[256, 0]]}), layers),
        &[],
        "256 positions",
    );
    says(
        &mut desk,
        plan(json!({"set": [[0, 9999]]}), layers),
        &[],
        "9 codes",
    );
    says(
        &mut desk,
        plan(json!({"codes": [1, 2]}), layers),
        &[],
        "positions",
    );
    says(
        &mut desk,
        plan(json!({"temperature": 99}), layers),
        &[],
        "temperature",
    );
    let question = json!({"ask": "prior", "layer": 99, "position": 0, "most": 1});
    says(&mut desk, question, &[], "no such position");
}
