"""`dummyaudit vllm`: what settings make a release build."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dummyaudit.cli import options
from dummyaudit.cli.plot import Plot, run_with_plot

EPILOG = """\b
Examples:
  dummyaudit vllm --release 0.26.0 --max-model-len 16 --max-num-seqs 256 --cudagraph-mode FULL
  dummyaudit vllm --release 0.25.1..0.33.0 -- vllm serve some/model --max-model-len 4k -cc.cudagraph_mode=FULL
"""


def vllm(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- vllm serve ...]", help="A command as it is pasted, behind --.", show_default=False
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="A release such as 0.26.0, a range such as 0.25.1..0.33.0, or installed.  "
            "[default: the installed one, else the newest known]",
            show_default=False,
        ),
    ] = None,
    runner: Annotated[
        Literal["v1", "v2", "both"] | None,
        typer.Option(help="Model runner, the first or the second.  [default: as the release chooses]"),
    ] = None,
    gpu: Annotated[
        Literal["small", "80gb", "160gb", "blackwell"],
        typer.Option(help="Whose defaults of max_num_seqs and max_num_batched_tokens are used."),
    ] = "small",
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A YAML config of vLLM, Kubernetes manifests, or a directory of these; repeatable.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="Local model directory, for its max_model_len.")
    ] = None,
    max_model_len: Annotated[str | None, typer.Option(metavar="N", help="Longest legal request, in tokens.")] = None,
    max_num_seqs: Annotated[str | None, typer.Option(metavar="N", help="Requests that may run together.")] = None,
    max_num_batched_tokens: Annotated[str | None, typer.Option(metavar="N", help="Tokens of one step.")] = None,
    block_size: Annotated[str | None, typer.Option(metavar="N", help="Tokens of one KV page.")] = None,
    kernel_block_size: options.KernelBlockSize = None,
    cudagraph_mode: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="NONE, PIECEWISE, FULL, FULL_DECODE_ONLY or FULL_AND_PIECEWISE."),
    ] = None,
    cudagraph_capture_sizes: Annotated[
        str | None, typer.Option(metavar=options.AXIS, help="Capture sizes, in tokens.")
    ] = None,
    max_cudagraph_capture_size: Annotated[
        str | None, typer.Option(metavar="N", help="Largest capture size, in tokens.")
    ] = None,
    num_speculative_tokens: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens that speculative decoding adds to each request.")
    ] = None,
    dcp: Annotated[str | None, typer.Option(metavar="N", help="Ranks of decode context parallelism.")] = None,
    interleave: Annotated[
        str | None, typer.Option(metavar="N", help="Consecutive tokens that one such rank holds.")
    ] = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="Capture no graphs.")] = False,
    enable_lora: Annotated[bool, typer.Option("--enable-lora", help="Serve LoRA adapters.")] = False,
    no_flashinfer_warmup: Annotated[
        bool, typer.Option("--no-flashinfer-warmup", help="Leave out the first runner's warm-up of FlashInfer.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name the flags of the command that are passed over.")
    ] = False,
    device: options.Device = "auto",
    form: options.FormatOption = "table",
    output: options.Output = None,
    report: options.Reports = None,
    plot: Plot = None,
    only_flagged: options.OnlyFlagged = False,
    show_all: options.ShowAll = False,
    strict: options.Strict = False,
    exit_zero: options.ExitZero = False,
) -> int:
    """Audit every dummy batch that a vLLM release builds from these settings.

    Settings come from options, from a pasted command and from files; the more explicit one wins.
    """
    from dummyaudit import api
    from dummyaudit import deployments as audited
    from dummyaudit.cli.vllm_settings import collect, find_releases

    given = {
        "model": model,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "block_size": block_size,
        "kernel_block_size": kernel_block_size,
        "cudagraph_mode": cudagraph_mode,
        "cudagraph_capture_sizes": cudagraph_capture_sizes,
        "max_cudagraph_capture_size": max_cudagraph_capture_size,
        "num_speculative_tokens": num_speculative_tokens,
        "decode_context_parallel_size": dcp,
        "dcp_kv_cache_interleave_size": interleave,
        "enforce_eager": enforce_eager or None,
        "enable_lora": enable_lora or None,
    }
    both: tuple[Literal["v1", "v2"], ...] = ("v1", "v2")
    return run_with_plot(
        lambda progress: audited.audit_deployments(
            collect(given, command or (), config or (), verbose),
            find_releases(release),
            runners=None if runner is None else both if runner == "both" else (runner,),
            gpu=gpu,
            flashinfer_warm_up=not no_flashinfer_warmup,
            device=device,
            strict=strict,
            only_flagged=only_flagged,
            worst=None if show_all else api.WORST,
            progress=progress,
        ),
        plot,
        form=form,
        output=output,
        report=report,
        show_all=show_all,
        exit_zero=exit_zero,
    )
