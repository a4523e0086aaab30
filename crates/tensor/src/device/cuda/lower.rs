//! From a plan to what the device does: every kernel becomes a job of launches and library calls.

use super::codegen::{Draft, direct, elementwise, movement, reduce};
use super::dnn::Direction as Which;
use super::hazards::Touch;
use super::launch::{Arg, Function, Launch, Launches};
use super::responsibility;
use crate::compile::{Base, Chain, ConvGeometry, Kernel, Place, Plan};
use crate::device::cost;
use crate::graph::DType;
use crate::op::MatrixProduct;

/// A step of a job.
#[derive(Clone, Debug)]
pub enum Action {
    Launch(Launch),
    /// A launch for many kernels of one form, and the table of their addresses.
    Shared(Launch, Vec<Arg>),
    Conv(Conv),
    Product(Product),
    /// So many elements, summed over all processes.
    AllSum {
        len: usize,
        from: Place,
        to: Place,
    },
}

/// A convolution and what finishes its result.
#[derive(Clone, Debug)]
pub struct Conv {
    pub which: Which,
    pub geometry: ConvGeometry,
    /// The two tensors it reads.
    pub a: Place,
    pub b: Place,
    /// Where its result goes, or would go if nothing finished it.
    pub out: Place,
    /// What is done to the result on its way, where that is more than storing it.
    pub chain: Option<Chain>,
}

/// Matrix products one behind the other.
#[derive(Clone, Debug)]
pub struct Product {
    pub of: MatrixProduct,
    /// Whether the factors are rounded to TF32.
    pub tf32: bool,
    pub a: Place,
    pub b: Place,
    pub out: Place,
}

/// What one kernel of the plan became.
#[derive(Clone, Debug)]
pub struct Job {
    pub kind: &'static str,
    pub flops: f64,
    pub bytes: f64,
    pub actions: Vec<Action>,
    pub scratch: usize,
    pub counters: usize,
    pub touch: Touch,
}

/// Memory lent to one job, from its start.
pub fn scratch(dtype: DType) -> Place {
    Place {
        base: Base::Scratch,
        offset: 0,
        dtype,
    }
}

/// All jobs of a plan in order. `exact` asks for responsibilities to f32's accuracy.
pub fn jobs(plan: &Plan, exact: bool) -> Vec<Job> {
    plan.kernels
        .iter()
        .filter_map(|kernel| job(kernel, exact))
        .collect()
}

fn job(kernel: &Kernel, exact: bool) -> Option<Job> {
    let mut job = Job {
        kind: cost::kind(kernel),
        flops: cost::flops(kernel),
        bytes: cost::bytes(kernel),
        actions: Vec::new(),
        scratch: 0,
        counters: 0,
        touch: Touch::of(kernel),
    };
    match kernel {
        Kernel::Batch(kernels) => job.batch(kernels, exact),
        _ => job.add(kernel, exact),
    }
    (!job.actions.is_empty()).then_some(job)
}

impl Job {
    /// A weight gradient: needed, but not soon.
    pub fn is_background(&self) -> bool {
        let weight = |a: &Action| matches!(a, Action::Conv(c) if c.which == Which::Weight);
        self.actions.iter().any(weight)
    }

    /// A sum over processes: always in the same order, so on a stream of its own.
    pub fn is_sum(&self) -> bool {
        let sum = |a: &Action| matches!(a, Action::AllSum { .. });
        self.actions.iter().any(sum)
    }

    /// A sum over processes, which rounds what it sends where that is asked for.
    fn all_sum(&mut self, len: usize, from: Place, to: Place, bf16: bool) {
        if !bf16 {
            return self.actions.push(Action::AllSum { len, from, to });
        }
        let rounded = scratch(DType::Bf16);
        self.scratch = self.scratch.max(len * DType::Bf16.bytes());
        self.launch(movement::convert(from, rounded, len));
        let (from, back) = (rounded, to);
        let to = rounded;
        self.actions.push(Action::AllSum { len, from, to });
        self.launch(movement::convert(rounded, back, len));
    }

    fn launch(&mut self, draft: Draft) {
        self.scratch = self.scratch.max(draft.scratch);
        self.counters = self.counters.max(draft.counters);
        self.actions.push(Action::Launch(draft.single()));
    }

    fn launches(&mut self, launches: Launches) {
        self.scratch = self.scratch.max(launches.scratch);
        self.counters = self.counters.max(launches.counters);
        self.actions
            .extend(launches.list.into_iter().map(Action::Launch));
    }

    /// Kernels of one form share a launch.
    fn batch(&mut self, kernels: &[Kernel], exact: bool) {
        let mut forms: Vec<Vec<Draft>> = Vec::new();
        let (mut scratch, mut counters) = (0, 0);
        for kernel in kernels {
            match draft(kernel) {
                Some(mut d) => {
                    d.shift(scratch, counters);
                    (scratch, counters) = (scratch + d.scratch, counters + d.counters);
                    match forms.iter_mut().find(|form| form[0].same_form(&d)) {
                        Some(form) => form.push(d),
                        None => forms.push(vec![d]),
                    }
                }
                None if is_empty(kernel) => {}
                None => self.add(kernel, exact),
            }
        }
        for form in forms {
            self.actions.push(match &form[..] {
                [one] => Action::Launch(one.single()),
                many => {
                    let (launch, table) = Draft::together(many);
                    Action::Shared(launch, table)
                }
            });
        }
        self.scratch = self.scratch.max(scratch);
        self.counters = self.counters.max(counters);
    }

    fn conv(&mut self, mut conv: Conv) {
        let len = conv.geometry.outputs(conv.which);
        if conv.chain.is_some() || conv.out.base == Base::Scratch {
            self.scratch = self.scratch.max(len * conv.out.dtype.bytes());
        }
        if conv.a.dtype != conv.b.dtype {
            self.round_factors(&mut conv);
        }
        self.actions.push(Action::Conv(conv));
    }

    /// cuDNN takes both factors in one type. Inputs of the program are f32 whoever reads them, and rounded here where
    /// they meet bf16.
    fn round_factors(&mut self, conv: &mut Conv) {
        let (len, [a, b]) = (
            conv.geometry.outputs(conv.which),
            conv.geometry.factors(conv.which),
        );
        // The result may lie in front, in either type.
        let mut used = (2 * len).next_multiple_of(128);
        for (factor, len) in [(&mut conv.a, a), (&mut conv.b, b)] {
            if factor.dtype != DType::Bf16 {
                let rounded = scratch(DType::Bf16).at(used);
                used += len.next_multiple_of(128);
                self.launch(movement::convert(*factor, rounded, len));
                *factor = rounded;
            }
        }
        self.scratch = self.scratch.max(used * DType::Bf16.bytes());
    }

    /// A convolution with the chain that finishes its result.
    fn anchored(&mut self, which: Which, g: &ConvGeometry, a: Place, b: Place, chain: &Chain) {
        let (out, chain) = match elementwise::is_copy(chain) {
            Some(place) => (place, None),
            None => (scratch(a.dtype), Some(chain.clone())),
        };
        self.conv(Conv {
            which,
            geometry: *g,
            a,
            b,
            out,
            chain,
        });
    }

    /// A matrix product with the chain that finishes its result. cuBLASLt is asked for f32 alone, so what a
    /// convolution shares with a product, and therefore lies in bf16, is turned on the way in and out.
    fn product(&mut self, of: MatrixProduct, tf32: bool, ab: [Place; 2], chain: &Chain) {
        let mut used = 0;
        let mut lend = |len: usize| {
            let lent = scratch(DType::F32).at(used);
            used += len.next_multiple_of(64);
            lent
        };
        let stored = elementwise::is_copy(chain).filter(|place| place.dtype == DType::F32);
        let out = stored.unwrap_or_else(|| lend(of.result()));
        let mut factors = ab;
        for (factor, len) in factors.iter_mut().zip([of.first(), of.second()]) {
            if factor.dtype != DType::F32 {
                let exact = lend(len);
                self.launch(movement::convert(*factor, exact, len));
                *factor = exact;
            }
        }
        self.scratch = self.scratch.max(used * DType::F32.bytes());
        self.actions.push(Action::Product(Product {
            of,
            tf32,
            a: factors[0],
            b: factors[1],
            out,
        }));
        if stored.is_none() {
            self.launch(elementwise::map(chain, Some(out)));
        }
    }

    fn add(&mut self, kernel: &Kernel, exact: bool) {
        if is_empty(kernel) {
            return;
        }
        if let Some(draft) = draft(kernel) {
            return self.launch(draft);
        }
        match kernel {
            Kernel::Conv {
                geometry,
                x,
                w,
                chain,
            } => self.anchored(Which::Forward, geometry, *x, *w, chain),
            Kernel::ConvGradInput {
                geometry,
                dy,
                w,
                chain,
            } => self.anchored(Which::Data, geometry, *dy, *w, chain),
            Kernel::ConvGradWeight {
                geometry,
                x,
                dy,
                out,
            } => self.conv(Conv {
                which: Which::Weight,
                geometry: *geometry,
                a: *x,
                b: *dy,
                out: *out,
                chain: None,
            }),
            Kernel::Matmul {
                product,
                tf32,
                a,
                b,
                chain,
            } => self.product(*product, *tf32 && !exact, [*a, *b], chain),
            Kernel::Responsibility {
                op,
                rows,
                dim,
                codes,
                inputs,
                z,
                index,
                kl,
            } => self.launches(responsibility::forward(
                op, *rows, *dim, *codes, inputs, *z, *index, *kl, exact,
            )),
            Kernel::ResponsibilityGrad {
                op,
                rows,
                dim,
                codes,
                inputs,
                outputs,
            } => self.launches(responsibility::backward(
                op, *rows, *dim, *codes, inputs, outputs, exact,
            )),
            Kernel::AllSum {
                len,
                from,
                to,
                bf16,
            } => self.all_sum(*len, *from, *to, *bf16),
            _ => unreachable!("every other kernel is a draft"),
        }
    }
}

/// A kernel that is one generated function.
fn draft(kernel: &Kernel) -> Option<Draft> {
    Some(match kernel {
        Kernel::Map(chain) => elementwise::map(chain, None),
        Kernel::Reduce {
            chain,
            op,
            outer,
            len,
            inner,
            out,
        } => reduce::reduce(chain, *op, [*outer, *len, *inner], *out),
        Kernel::Move {
            movement: m,
            from,
            to,
        } => movement::movement(m, *from, *to),
        Kernel::Fill { to, len, value } => movement::fill(*to, *len, *value),
        Kernel::ArgMax { rows, cols, x, out } => movement::argmax(*rows, *cols, *x, *out),
        Kernel::Gather {
            rows,
            cols,
            table,
            index,
            out,
            ..
        } => movement::gather(*rows, *cols, *table, *index, *out),
        Kernel::ScatterAdd {
            rows,
            cols,
            codes,
            index,
            x,
            out,
        } => movement::scatter_add(*rows, *cols, *codes, *index, *x, *out),
        _ => return None,
    })
}

/// Nothing to do: a fill of no elements.
fn is_empty(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Fill { len: 0, .. })
}

impl ConvGeometry {
    /// Elements of the map it reads, of the map it makes, and of the kernel.
    fn sizes(&self) -> [usize; 3] {
        [
            self.n * self.h * self.w * self.ci,
            self.n * self.oh * self.ow * self.co,
            self.kh * self.kw * self.ci * self.co,
        ]
    }

    /// Elements of the result.
    pub fn outputs(&self, which: Which) -> usize {
        let [x, y, w] = self.sizes();
        match which {
            Which::Forward => y,
            Which::Data => x,
            Which::Weight => w,
        }
    }

    /// Elements of the two tensors it reads.
    pub fn factors(&self, which: Which) -> [usize; 2] {
        let [x, y, w] = self.sizes();
        match which {
            Which::Forward => [x, w],
            Which::Data => [y, w],
            Which::Weight => [x, y],
        }
    }
}

/// Every function the jobs launch, including what finishes a convolution that cuDNN does not finish itself.
pub fn functions(jobs: &[Job]) -> Vec<Function> {
    let mut list = Vec::new();
    for action in jobs.iter().flat_map(|job| &job.actions) {
        match action {
            Action::Launch(launch) | Action::Shared(launch, _) => {
                list.push(launch.function.clone())
            }
            Action::Product(_) | Action::AllSum { .. } => {}
            Action::Conv(c) => {
                let direct = direct::conv(c.which, &c.geometry, c.a, c.b, c.out);
                list.push(direct.single().function);
                if let Some(chain) = &c.chain {
                    list.push(elementwise::map(chain, Some(c.out)).single().function);
                }
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile_for;
    use crate::device::Precision;
    use crate::device::cuda::target;
    use crate::grad::grad;
    use crate::graph::Graph;

    /// Everything reads what everything else reads: a product a convolution's input, a weight gradient an input.
    #[test]
    fn products_meet_f32_and_convolutions_one_type() {
        let g = Graph::new();
        let a = g.input("a", &[32, 16], DType::F32);
        let b = g.input("b", &[16, 16], DType::F32);
        let w = g.input("w", &[3, 3, 16, 16], DType::F32);
        let mixed = a.elu().matmul(b, false, false);
        let maps = [mixed, a.elu()].map(|x| {
            let map = x.reshape(&[2, 4, 4, 16]).conv(w, 1);
            map.reshape(&[32, 16])
        });
        let out = maps[0] + maps[1] + mixed.matmul(b, false, false);
        let slope = grad((out * g.input("slope", &[32, 16], DType::F32)).sum(), &[w])[0];
        let layout = g.layout();
        let outputs = [("out", out), ("slope of w", slope)];
        let plan = compile_for(target(Precision::Bf16), &g, &layout, &outputs).unwrap();
        let jobs = jobs(&plan, false);
        let (mut products, mut rounded) = (0, 0);
        for job in &jobs {
            for action in &job.actions {
                let p = match action {
                    Action::Product(p) => p,
                    Action::Conv(conv) => {
                        assert_eq!(conv.a.dtype, conv.b.dtype, "{conv:?}");
                        rounded += [conv.a, conv.b]
                            .iter()
                            .filter(|place| place.base == Base::Scratch)
                            .count();
                        continue;
                    }
                    _ => continue,
                };
                products += 1;
                for place in [p.a, p.b, p.out] {
                    assert_eq!(place.dtype, DType::F32, "{p:?}");
                }
                let lent = [p.a, p.b, p.out].map(|place| match place.base {
                    Base::Scratch => (place.offset + 512) * 4,
                    _ => 0,
                });
                assert!(lent.iter().all(|end| *end <= job.scratch), "{p:?}");
            }
        }
        assert_eq!(products, 2);
        assert!(rounded > 0, "a slope that is an input meets bf16");
        let turned = |a: &Action| matches!(a, Action::Launch(_));
        let of_products = jobs
            .iter()
            .filter(|j| j.actions.iter().any(|a| matches!(a, Action::Product(_))));
        assert!(
            of_products
                .flat_map(|j| &j.actions)
                .filter(|a| turned(a))
                .count()
                >= 2
        );
    }
}
