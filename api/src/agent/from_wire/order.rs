//! Launch orders from the wire.

use headway_types::spec::{
    Command, Hooks, LrScaling, Notice, NoticeTo, Precision, PrintedProgress, PrintingRank, Run, RunPer,
};
use headway_types::{
    AttentionWindow, Experts, Generation, Latent, LaunchOrder, LayerKinds, ModelShape, Placement, RecurrentKind,
    RecurrentLayers, Sequences, Tokens,
};

use super::{
    Read, WireError, array_place, checkpoint, configuration, node_address, node_slice, parse, present, seconds,
    unknown, wire,
};

pub(super) fn launch_order(order: wire::LaunchOrder) -> Read<LaunchOrder> {
    let slices = order.placement.into_iter().map(node_slice).collect::<Read<Vec<_>>>()?;
    Ok(LaunchOrder {
        job: parse("job_id", &order.job_id)?,
        generation: Generation(order.generation),
        lr_scaling: match wire::LrScaling::try_from(order.lr_scaling) {
            Ok(wire::LrScaling::None) => LrScaling::None,
            Ok(wire::LrScaling::Sqrt) => LrScaling::Sqrt,
            Ok(wire::LrScaling::Linear) => LrScaling::Linear,
            Ok(wire::LrScaling::Adascale) => LrScaling::Adascale,
            Ok(wire::LrScaling::Unspecified) | Err(_) => return unknown("lr_scaling", order.lr_scaling),
        },
        job_name: order.job_name,
        array: order.array.map(array_place).transpose()?,
        owner: order.owner,
        run: run(present("run", order.run)?)?,
        model: order.model.map(model).transpose()?,
        placement: Placement::try_new(slices)
            .map_err(|error| WireError::Bad { field: "placement", message: error.to_string() })?,
        nodes: order.nodes.into_iter().map(node_address).collect::<Read<_>>()?,
        configuration: order.configuration.map(configuration).transpose()?,
        lr_scale: order.lr_scale,
        reference_batch: order.reference_batch.map(Sequences),
        checkpoint_dir: order.checkpoint_dir,
        checkpoint_every: seconds("checkpoint_every_seconds", order.checkpoint_every_seconds)?,
        resume: order.resume.map(checkpoint),
        grace: seconds("grace_seconds", order.grace_seconds)?,
        notice: order.notice.map(notice).transpose()?,
        watched: order.watched,
    })
}

fn notice(notice: wire::Notice) -> Read<Notice> {
    Ok(Notice {
        signal: parse("signal", &notice.signal)?,
        before: seconds("before_seconds", notice.before_seconds)?,
        to: if notice.command_alone { NoticeTo::Command } else { NoticeTo::Handlers },
    })
}

fn model(model: wire::Model) -> Read<(ModelShape, Precision)> {
    let precision = match model.precision() {
        wire::Precision::Unspecified => return unknown("precision", model.precision),
        wire::Precision::Bf16 => Precision::Bf16,
        wire::Precision::Fp16 => Precision::Fp16,
        wire::Precision::Fp32 => Precision::Fp32,
        wire::Precision::Fp8 => Precision::Fp8,
    };
    let shape = ModelShape {
        layers: model.layers,
        hidden: model.hidden,
        heads: model.heads,
        kv_heads: model.kv_heads,
        ffn_hidden: model.ffn_hidden,
        gated: model.gated,
        vocab: model.vocab,
        seq_len: model.seq_len,
        tied: model.tied,
        head_width: model.head_width,
        experts: model.experts.map(|of| Experts {
            count: of.count,
            active: of.active,
            ffn_hidden: of.ffn_hidden,
            shared_ffn_hidden: of.shared_ffn_hidden,
            dense_layers: of.dense_layers,
        }),
        latent: model.latent.map(|of| Latent {
            query_rank: of.query_rank,
            kv_rank: of.kv_rank,
            plain_width: of.plain_width,
            rotary_width: of.rotary_width,
            value_width: of.value_width,
        }),
        kinds: model.kinds.map(layer_kinds).transpose()?,
    };
    Ok((shape, precision))
}

fn layer_kinds(kinds: wire::LayerKinds) -> Read<LayerKinds> {
    Ok(LayerKinds {
        window: kinds.window.map(|of| AttentionWindow { layers: of.layers, tokens: of.tokens, chunked: of.chunked }),
        recurrent: kinds.recurrent.map(recurrent_layers).transpose()?,
        ffn_only: kinds.ffn_only,
        without_ffn: kinds.without_ffn,
        gated_attention: kinds.gated_attention,
        positions: kinds.positions,
    })
}

fn recurrent_layers(of: wire::RecurrentLayers) -> Read<RecurrentLayers> {
    let kind = match of.kind() {
        wire::RecurrentKind::Unspecified => return unknown("recurrent kind", of.kind),
        wire::RecurrentKind::Mamba => RecurrentKind::Mamba,
        wire::RecurrentKind::Mamba2 => RecurrentKind::Mamba2,
        wire::RecurrentKind::GatedDelta => RecurrentKind::GatedDelta,
        wire::RecurrentKind::Lightning => RecurrentKind::Lightning,
        wire::RecurrentKind::Convolution => RecurrentKind::Convolution,
    };
    Ok(RecurrentLayers {
        layers: of.layers,
        kind,
        heads: of.heads,
        head_width: of.head_width,
        state: of.state,
        groups: of.groups,
        convolution: of.convolution,
        rank: of.rank,
    })
}

fn run(run: wire::Run) -> Read<Run> {
    Ok(Run {
        per: match run.per() {
            wire::RunPer::Unspecified => return unknown("per", run.per),
            wire::RunPer::Node => RunPer::Node,
            wire::RunPer::Gpu => RunPer::Gpu,
        },
        command: match present("run command", run.command)? {
            wire::run::Command::Shell(line) => Command::Shell(line),
            wire::run::Command::Argv(argv) => Command::Argv(argv.words),
        },
        workdir: run.workdir,
        env: run.env,
        secrets: run.secrets,
        secret_files: run.secret_files.into_iter().collect(),
        hooks: run.hooks.map(hooks).transpose()?.unwrap_or_default(),
        progress: run.progress.map(progress),
    })
}

fn progress(progress: wire::PrintedProgress) -> PrintedProgress {
    PrintedProgress {
        regex: progress.regex,
        rank: if progress.last_rank { PrintingRank::Last } else { PrintingRank::First },
        samples_per_step: progress.samples_per_step.map(Sequences),
        tokens_per_step: progress.tokens_per_step.map(Tokens),
        sequence_length: progress.sequence_length,
    }
}

fn hooks(hooks: wire::Hooks) -> Read<Hooks> {
    let timeout = seconds("timeout_seconds", hooks.timeout_seconds)?;
    Ok(Hooks { prolog: hooks.prolog, epilog: hooks.epilog, timeout })
}
