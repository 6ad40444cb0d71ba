use headway_calibration::{fit, prior::Prior, score, table::Table, validate};
use headway_goodput::{catalog::Catalog, physics::Parameters};
fn show(title: &str, m: &[headway_calibration::measurement::Measurement], p: &[score::Predicted]) {
    println!("== {title}");
    for s in score::scoreboard(m, p) {
        let mem = s.memory.map_or(String::new(), |e| format!("mem {:5.1}% bias {:5.1}", e.mape, e.bias));
        let oom = s
            .out_of_memory
            .map_or(String::new(), |o| format!("oom r {:.3} p {:.3} kept {:.3}", o.recall, o.precision, o.kept));
        println!(
            "{:45} n {:5} MAPE {:6.2} med {:6.2} p90 {:6.1} bias {:6.1} 1f {:5.1} naive {:5.1} rho {:.2} | g {:3} top1 {:5.2} top3 {:5.2} w5 {:4.0} | {mem} {oom}",
            s.name,
            s.step_time.rows,
            s.step_time.mape,
            s.step_time.median,
            s.step_time.p90,
            s.step_time.bias,
            s.step_time.after_one_factor,
            s.constant_mfu,
            s.spearman,
            s.choice.groups,
            s.choice.top1_regret,
            s.choice.top3_regret,
            s.choice.within_5
        );
    }
}
fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let cmd = args.remove(0);
    let mut t = Table::default();
    let params = std::env::var("PARAMS").ok();
    let start = params.map_or_else(
        || Parameters::built_in().clone(),
        |f| Parameters::parse(&std::fs::read_to_string(f).unwrap()).unwrap(),
    );
    for f in &args {
        t.read(std::path::Path::new(f), Catalog::built_in()).unwrap();
    }
    for ((s, k), n) in &t.skipped {
        println!("skip {s} {n}: {k}");
    }
    let prior = Prior::built_in();
    match cmd.as_str() {
        "score" => show("in", &t.measurements, &score::predict(&t.measurements, &start)),
        "fit" => {
            let r = fit::fit(&t.measurements, &start, &prior, 30).unwrap();
            eprintln!("objective {} evals {} conv {}", r.objective, r.evaluations, r.converged);
            show("fitted", &t.measurements, &score::predict(&t.measurements, &r.parameters));
            std::fs::write("/tmp/proto/physics.toml", headway_calibration::publish::publish(&r.parameters).unwrap())
                .unwrap();
        }
        _ => {
            let lo = if cmd == "cvs" { validate::LeaveOut::Sources } else { validate::LeaveOut::Models { turns: 6 } };
            let p = validate::predict_left_out(&t.measurements, &start, &prior, lo, 6).unwrap();
            let (m, q): (Vec<_>, Vec<_>) =
                t.measurements.iter().cloned().zip(p).filter_map(|(m, p)| p.map(|p| (m, p))).unzip();
            show(&cmd, &m, &q);
        }
    }
}
