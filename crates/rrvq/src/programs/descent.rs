//! The down pass of one picture a layer at a time, to stop at a layer, look at it, change it and go on; and what the
//! posterior finds at every position of an image.
//!
//! The numbers are those of the whole programs: going all the way down gives [`super::Sampler`]'s picture.

use super::codes::check_coded;
use super::{Model, one};
use crate::error::Result;
use crate::model::Hierarchy;
use rrvq_tensor::rng::counter;
use rrvq_tensor::{Data, Device, Graph, Program, Store, Var};

const ABOVE: &str = "above";
const CODES: &str = "codes";
const ANSWER: &str = "answer";

/// The pieces of the down pass, each compiled when it is first needed. Features are those between two layers, as
/// [`Descent::below`] gives them; above the top layer they are learnt, and an empty slice stands for them.
pub struct Descent {
    device: Device,
    model: Model,
    store: Store,
    /// Of each layer, bottom first.
    draw: Vec<Option<Program>>,
    prior: Vec<Option<Program>>,
    below: Vec<Option<Program>>,
    show: Option<Program>,
}

impl Descent {
    /// `theta` are the model's parameters, in the order of its layout.
    pub fn new(device: &Device, model: &Model, theta: &[f32]) -> Result<Self> {
        check_coded(model)?;
        let none = || (0..model.config.layers()).map(|_| None).collect();
        Ok(Descent {
            device: device.clone(),
            model: model.clone(),
            store: Store::with("theta", theta.to_vec()),
            draw: none(),
            prior: none(),
            below: none(),
            show: None,
        })
    }

    /// The codes of a layer that the prior draws with the noise of a counter, as [`super::Sampler::run`] does.
    pub fn draw(
        &mut self,
        layer: usize,
        above: &[f32],
        noise: [u32; 4],
        temperature: f32,
    ) -> Result<Vec<u32>> {
        let program = compiled(&mut self.draw[layer], &self.device, &self.model, |h| {
            h.drawn_codes(layer, above_layer(h, layer))
        })?;
        let scale = [temperature];
        let inputs = [
            (ABOVE, Data::F32(above)),
            ("counter", Data::U32(&noise)),
            ("tau", one()),
            ("noise_scale", Data::F32(&scale)),
        ];
        run(program, &mut self.store, &inputs)?;
        Ok(program.output_u32(ANSWER)?)
    }

    /// log p of every code at every position of a layer; none where all are equally likely.
    pub fn log_prior(&mut self, layer: usize, above: &[f32]) -> Result<Option<Vec<f32>>> {
        // A drawing of its own: the others have an answer always.
        let graph = Graph::new();
        let hierarchy = Hierarchy::new(&graph, &self.model.config, 1);
        let Some(answer) = hierarchy.log_prior(layer, above_layer(&hierarchy, layer)) else {
            return Ok(None);
        };
        let program = match &mut self.prior[layer] {
            Some(program) => program,
            none => none.insert(Program::new(
                &self.device,
                &graph,
                &self.model.layout,
                &[(ANSWER, answer)],
            )?),
        };
        run(program, &mut self.store, &[(ABOVE, Data::F32(above))])?;
        Ok(Some(program.output(ANSWER)?.into_owned()))
    }

    /// The features below a layer of these codes.
    pub fn below(&mut self, layer: usize, above: &[f32], codes: &[u32]) -> Result<Vec<f32>> {
        let program = compiled(&mut self.below[layer], &self.device, &self.model, |h| {
            let d = above_layer(h, layer);
            h.below(layer, d, h.given_codes(CODES, layer, d))
        })?;
        let inputs = [(ABOVE, Data::F32(above)), (CODES, Data::U32(codes))];
        run(program, &mut self.store, &inputs)?;
        Ok(program.output(ANSWER)?.into_owned())
    }

    /// Means of the pixels, 0 … 255, from the features below the lowest layer.
    pub fn show(&mut self, features: &[f32]) -> Result<Vec<f32>> {
        let program = compiled(&mut self.show, &self.device, &self.model, |h| {
            h.shown(h.given_features(ABOVE, 0))
        })?;
        run(program, &mut self.store, &[(ABOVE, Data::F32(features))])?;
        Ok(program.output(ANSWER)?.into_owned())
    }
}

/// The features above a layer: learnt at the top, an input elsewhere.
fn above_layer<'g>(hierarchy: &Hierarchy<'g>, layer: usize) -> Var<'g> {
    match layer + 1 == hierarchy.layers() {
        true => hierarchy.top(),
        false => hierarchy.given_features(ABOVE, layer + 1),
    }
}

fn compiled<'a>(
    place: &'a mut Option<Program>,
    device: &Device,
    model: &Model,
    draw: impl for<'g> Fn(&Hierarchy<'g>) -> Var<'g>,
) -> Result<&'a mut Program> {
    match place {
        Some(program) => Ok(program),
        none => {
            let graph = Graph::new();
            let answer = draw(&Hierarchy::new(&graph, &model.config, 1));
            let program = Program::new(device, &graph, &model.layout, &[(ANSWER, answer)])?;
            Ok(none.insert(program))
        }
    }
}

/// Runs with those of the inputs that are there: learnt features are none.
fn run(program: &mut Program, store: &mut Store, inputs: &[(&str, Data<'_>)]) -> Result<()> {
    let given = |(_, data): &&(&str, Data<'_>)| !matches!(data, Data::F32([]));
    let inputs: Vec<_> = inputs.iter().filter(given).copied().collect();
    Ok(program.run(store, &inputs)?)
}

/// The posterior's most likely codes of an image, and what they cost, position by position.
pub struct Posterior {
    program: Program,
    store: Store,
    layers: usize,
}

/// What [`Posterior`] finds in an image.
pub struct Found {
    /// The codes of each layer, bottom first.
    pub codes: Vec<Vec<u32>>,
    /// KL of each position in nats, of each layer.
    pub kl: Vec<Vec<f32>>,
    /// log p(x | z) in nats.
    pub log_likelihood: f32,
}

impl Posterior {
    /// `theta` are the model's parameters, in the order of its layout.
    pub fn new(device: &Device, model: &Model, theta: &[f32]) -> Result<Self> {
        check_coded(model)?;
        let graph = Graph::new();
        let elbo = Hierarchy::new(&graph, &model.config, 1).hard_elbo();
        let codes = elbo.codes.iter().enumerate();
        let codes = codes.map(|(layer, var)| (format!("codes.{layer}"), *var));
        let kl = elbo.kl_rows.iter().enumerate();
        let kl = kl.map(|(layer, var)| (format!("kl.{layer}"), *var));
        let named: Vec<(String, Var<'_>)> = codes
            .chain(kl)
            .chain([(ANSWER.into(), elbo.log_likelihood)])
            .collect();
        let outputs: Vec<(&str, Var<'_>)> = named.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        Ok(Posterior {
            program: Program::new(device, &graph, &model.layout, &outputs)?,
            store: Store::with("theta", theta.to_vec()),
            layers: elbo.codes.len(),
        })
    }

    /// Looks at one image, its samples one after another.
    pub fn run(&mut self, image: &[u8]) -> Result<Found> {
        let noise = counter(0, 0);
        let inputs = [
            ("images", Data::U8(image)),
            ("counter", Data::U32(&noise)),
            ("tau", one()),
            ("noise_scale", Data::F32(&[0.0])),
        ];
        self.program.run(&mut self.store, &inputs)?;
        let (mut codes, mut kl) = (Vec::new(), Vec::new());
        for layer in 0..self.layers {
            codes.push(self.program.output_u32(&format!("codes.{layer}"))?);
            kl.push(self.program.output(&format!("kl.{layer}"))?.into_owned());
        }
        Ok(Found {
            codes,
            kl,
            log_likelihood: self.program.scalar(ANSWER)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, SampleOptions, Trained};

    fn model(changes: &[&str]) -> Trained {
        let mut config = Config::preset("tiny-swatches").unwrap();
        changes.iter().for_each(|c| config.set(c).unwrap());
        let theta = Model::new(&config.model).layout.initial(5);
        Trained::new(config, theta, 0, None).unwrap()
    }

    #[test]
    fn going_down_a_layer_at_a_time_is_sampling() {
        for changes in [
            &["model.top=learnt"][..],
            &["model.prior=direct"],
            &["model.latent=nearest"],
        ] {
            let trained = model(changes);
            let mut descent = Descent::new(&Device::Cpu, trained.model(), trained.theta()).unwrap();
            let mut features = Vec::new();
            for layer in (0..trained.config().model.layers()).rev() {
                let codes = descent.draw(layer, &features, counter(9, 0), 0.8).unwrap();
                features = descent.below(layer, &features, &codes).unwrap();
            }
            let means = descent.show(&features).unwrap();
            let shown = crate::sample::pictures_of(trained.model(), &means).unwrap();
            let options = SampleOptions {
                seed: 9,
                temperature: 0.8,
                ..SampleOptions::default()
            };
            assert_eq!(shown, trained.sample(1, options).unwrap(), "{changes:?}");
        }
    }

    #[test]
    fn the_posterior_finds_the_codes_of_encoding_and_the_elbo_of_scoring() {
        let trained = model(&[]);
        let pictures = trained.sample(1, SampleOptions::default()).unwrap();
        let mut posterior = Posterior::new(&Device::Cpu, trained.model(), trained.theta()).unwrap();
        let found = posterior.run(pictures[0].pixels()).unwrap();
        let codes = trained.encode(&pictures).unwrap();
        let values: Vec<_> = codes.layers.into_iter().map(|map| map.values).collect();
        assert_eq!(found.codes, values);
        let sums = found.kl.iter().map(|map| map.iter().sum::<f32>());
        assert!(sums.clone().all(|kl| kl >= -1e-4) && sums.sum::<f32>() > 0.0);
        assert!(found.log_likelihood < 0.0);
    }
}
