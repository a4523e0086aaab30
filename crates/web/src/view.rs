//! A model as the page shows it: a picture that is drawn from the top layer down, of which only what changed is computed.

use crate::Answer;
use rrvq::picture::Picture;
use rrvq::programs::{Descent, Posterior};
use rrvq::sample::pictures_of;
use rrvq::{Error, Result, Trained, latent};
use rrvq_codec::CodingModel;
use rrvq_tensor::rng::counter;
use serde::Deserialize;
use serde_json::json;
use std::f32::consts::LN_2;

/// Where the codes of a picture come from.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Of each layer, bottom first.
    pub layers: Vec<LayerPlan>,
}

/// Where the codes of a layer come from: all its positions are given or drawn, then some are drawn anew, then some are set.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayerPlan {
    /// The codes, row by row; without them the prior draws.
    pub codes: Option<Vec<u32>>,
    /// The noise to draw with.
    pub seed: u32,
    /// 1 samples the prior as it is, 0 takes its most likely codes.
    pub temperature: f32,
    /// Positions to draw with another noise: (position, seed).
    pub redraw: Vec<(usize, u32)>,
    /// Positions and their codes.
    pub set: Vec<(usize, u32)>,
}

/// A layer of the last picture.
#[derive(Default)]
struct Drawn {
    plan: Option<LayerPlan>,
    above: Vec<f32>,
    codes: Vec<u32>,
}

/// An open model.
pub struct View {
    trained: Trained,
    name: String,
    descent: Descent,
    posterior: Option<Posterior>,
    /// Bottom first.
    last: Vec<Drawn>,
    below_last: Vec<f32>,
}

impl View {
    /// The model in the bytes of a packed file.
    pub fn open(bytes: &[u8], name: &str) -> Result<View> {
        let trained = Trained::read(bytes, name)?;
        let descent = Descent::new(trained.device(), trained.model(), trained.theta())?;
        let layers = trained.config().model.layers();
        Ok(View {
            trained,
            name: name.into(),
            descent,
            posterior: None,
            last: (0..layers).map(|_| Drawn::default()).collect(),
            below_last: Vec::new(),
        })
    }

    /// The model.
    pub fn trained(&self) -> &Trained {
        &self.trained
    }

    fn sides(&self) -> Vec<usize> {
        self.trained.config().model.sides()
    }

    fn codes(&self, layer: usize) -> usize {
        latent::codes(&self.trained.config().model, layer).unwrap_or(0)
    }

    /// What the model is.
    pub fn describe(&self) -> Result<Answer> {
        let config = &self.trained.config().model;
        let sides = self.sides().into_iter().enumerate();
        let layers: Vec<_> = sides
            .map(|(layer, side)| json!({"side": side, "codes": self.codes(layer)}))
            .collect();
        // Some models have codes but cannot write files.
        let identity = match self.trained.workers() {
            Ok((_, identity)) => Some(identity.to_string()),
            Err(_) => None,
        };
        let told = json!({
            "name": self.name, "size": config.size, "channels": config.image_channels,
            "layers": layers, "parameters": self.trained.theta().len(),
            "data": self.trained.config().data.name, "identity": identity,
        });
        Ok(Answer::new(told, Vec::new()))
    }

    fn check(&self, plan: &Plan) -> Result<()> {
        let sides = self.sides();
        let wrong =
            |said: String| Err(Error::new(format!("a plan does not fit the model: {said}")));
        if plan.layers.len() != sides.len() {
            return wrong(format!(
                "it has {} layers, the model has {}",
                plan.layers.len(),
                sides.len()
            ));
        }
        for (layer, (plan, side)) in plan.layers.iter().zip(sides).enumerate() {
            let (positions, most) = (side * side, self.codes(layer));
            let given = plan.codes.iter().flatten();
            let set = plan.set.iter().map(|(_, code)| code);
            if given.chain(set).any(|&code| code as usize >= most) {
                return wrong(format!("layer {} has {most} codes", layer + 1));
            }
            let places = plan.redraw.iter().chain(&plan.set);
            let count = plan.codes.as_ref().map_or(positions, Vec::len);
            if count != positions || places.into_iter().any(|(at, _)| *at >= positions) {
                return wrong(format!("layer {} has {positions} positions", layer + 1));
            }
            if !(0.0..=4.0).contains(&plan.temperature) {
                return wrong("a temperature lies between 0 and 4".into());
            }
        }
        Ok(())
    }

    /// Draws a picture: its codes as text, its pixels as bytes of red, green, blue and opacity.
    pub fn draw(&mut self, plan: &Plan) -> Result<Answer> {
        self.check(plan)?;
        let mut above: Vec<f32> = Vec::new();
        let mut same = true;
        for (layer, wanted) in plan.layers.iter().enumerate().rev() {
            let last = &self.last[layer];
            let keep = same && last.plan.as_ref() == Some(wanted);
            let codes = match keep {
                true => last.codes.clone(),
                false => self.codes_of(layer, wanted, &above)?,
            };
            same &= self.last[layer].codes == codes;
            let below = match layer.checked_sub(1) {
                _ if !same => self.descent.below(layer, &above, &codes)?,
                Some(next) => self.last[next].above.clone(),
                None => self.below_last.clone(),
            };
            self.last[layer] = Drawn {
                plan: Some(wanted.clone()),
                above,
                codes,
            };
            above = below;
        }
        self.below_last = above;
        let means = self.descent.show(&self.below_last)?;
        let codes: Vec<_> = self.last.iter().map(|drawn| &drawn.codes).collect();
        let pictures = pictures_of(self.trained.model(), &means)?;
        Ok(Answer::new(json!({ "codes": codes }), opaque(&pictures)))
    }

    fn codes_of(&mut self, layer: usize, plan: &LayerPlan, above: &[f32]) -> Result<Vec<u32>> {
        let mut draw = |seed: u32| {
            let noise = counter(u64::from(seed), 0);
            self.descent.draw(layer, above, noise, plan.temperature)
        };
        let mut codes = match &plan.codes {
            Some(codes) => codes.clone(),
            None => draw(plan.seed)?,
        };
        let mut drawn: Option<(u32, Vec<u32>)> = None;
        for &(position, seed) in &plan.redraw {
            let others = match drawn.take() {
                Some((with, others)) if with == seed => others,
                _ => draw(seed)?,
            };
            codes[position] = others[position];
            drawn = Some((seed, others));
        }
        for &(position, code) in &plan.set {
            codes[position] = code;
        }
        Ok(codes)
    }

    /// The likeliest codes at a position of the last picture, with their probabilities, and that of the code that is there.
    pub fn prior(&mut self, layer: usize, position: usize, most: usize) -> Result<Answer> {
        let Some(&code) = self.last.get(layer).and_then(|l| l.codes.get(position)) else {
            return Err(Error::new(
                "there is no such position; draw a picture first",
            ));
        };
        let count = self.codes(layer);
        let above = &self.last[layer].above;
        let chances: Vec<f32> = match self.descent.log_prior(layer, above)? {
            Some(all) => all[position * count..][..count]
                .iter()
                .map(|v| v.exp())
                .collect(),
            None => vec![1.0 / count as f32; count],
        };
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| chances[b].total_cmp(&chances[a]));
        let likeliest: Vec<_> = order.iter().take(most).map(|&k| (k, chances[k])).collect();
        let entropy: f32 = chances.iter().map(|p| -p * p.max(1e-30).log2()).sum();
        let told = json!({
            "code": code, "chance": chances[code as usize], "entropy": entropy, "likeliest": likeliest,
        });
        Ok(Answer::new(told, Vec::new()))
    }

    /// The most likely codes of an image, the bits of each position, and the image as the model sees it.
    pub fn encode(&mut self, picture: &Picture) -> Result<Answer> {
        let posterior = match &mut self.posterior {
            Some(posterior) => posterior,
            none => none.insert(Posterior::new(
                self.trained.device(),
                self.trained.model(),
                self.trained.theta(),
            )?),
        };
        let found = posterior.run(picture.pixels())?;
        let bits = |map: &Vec<f32>| map.iter().map(|kl| kl / LN_2).collect::<Vec<f32>>();
        let told = json!({
            "codes": found.codes,
            "bits": found.kl.iter().map(bits).collect::<Vec<_>>(),
            "pixel_bits": -found.log_likelihood / LN_2,
        });
        Ok(Answer::new(told, opaque(std::slice::from_ref(picture))))
    }
}

/// Red, green, blue and full opacity of each pixel.
fn opaque(pictures: &[Picture]) -> Vec<u8> {
    let mut out = Vec::new();
    for picture in pictures {
        for pixel in picture.pixels().chunks_exact(picture.shape()[2]) {
            match *pixel {
                [red, green, blue] => out.extend([red, green, blue, 255]),
                _ => out.extend([pixel[0], pixel[0], pixel[0], 255]),
            }
        }
    }
    out
}
