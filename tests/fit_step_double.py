"""Stands for the kernels of fit_step.cu, in torch: the host's side without a GPU, the kernels beside it on one."""

import math

import torch

from optimise_cuda import kernel_constants


class FitStepDouble:
    """As `cuda_ext.KernelModule`; counts the steps that it began."""

    def __init__(self, name: str, device: torch.device, **constants) -> None:
        assert name == "fit_step" and constants == kernel_constants()
        self.constants = constants
        self.steps = 0

    def launch(self, kernel: str, grid, block, *arguments) -> None:
        with torch.no_grad():
            getattr(self, kernel)(*arguments)

    def place(self, name: str) -> int:
        return self.constants[name]

    def begin_step(self, state, picks, views, pool_viewmats, pool_Ks, picked, viewmats, Ks) -> None:
        self.steps += 1
        row = int(state[self.place("NEXT")])
        state[self.place("ROW")], state[self.place("NEXT")] = row, row + 1
        picked.copy_(picks[row])
        viewmats.copy_(pool_viewmats[picked.long()])
        Ks.copy_(pool_Ks[picked.long()])

    def compare_pictures(
        self, rgb, alpha, pool_rgb, pool_alpha, picked, rgb_weights, alpha_weights, pixels, squared_rgb, squared_alpha,
        rgb_gradient, alpha_gradient, partial,
    ) -> None:  # fmt: skip
        loss = 0.0
        pairs = [(rgb, pool_rgb, rgb_weights / (3 * pixels), squared_rgb, rgb_gradient)]
        if pool_alpha is not None:
            pairs.append((alpha, pool_alpha, alpha_weights / pixels, squared_alpha, alpha_gradient))
        for rendered, pool, weights, squared, gradient in pairs:
            error = rendered - pool[picked.long()]
            weights = weights.reshape(-1, *[1] * (error.ndim - 1))
            gradient.copy_(weights * (2 * error if squared else error.sign()))
            loss = loss + (weights * (error.square() if squared else error.abs())).sum()
        partial.zero_()
        partial[0] = loss

    def finish_loss(self, partial, count, losses, state) -> None:
        loss = partial.sum()
        losses[state[self.place("ROW")]] = loss
        finite = math.isfinite(loss)
        state[self.place("FINITE")] = finite
        run = 0 if finite else int(state[self.place("BAD_RUN")]) + 1
        state[self.place("BAD_RUN")] = run
        state[self.place("LONGEST_BAD_RUN")] = max(run, int(state[self.place("LONGEST_BAD_RUN")]))

    def move_gaussians(self, count, state, *rest) -> None:
        if not state[self.place("FINITE")]:
            return
        parameters = [rest[4 * k : 4 * k + 4] for k in range(5)]  # means, quats, log_scales, logits, sh0
        (ages, centre_pulls, radii, rgb_weights, views, half_width, half_height, total, seen,
         means_rate, fall, means_steps, quats_rate, scales_rate, logits_rate, colours_rate,
         entropy, largest, log_ratio) = rest[20:]  # fmt: skip
        good = torch.ones_like(parameters[3][0], dtype=torch.bool)
        for value, pull, _, _ in parameters:
            good &= value.reshape(count, -1).isfinite().all(1) & pull.reshape(count, -1).isfinite().all(1)
        logits = parameters[3][0]
        state[self.place("DROPPED")] += int((~good & (logits != -math.inf)).sum())
        logits[~good] = -math.inf
        half = centre_pulls.new_tensor([half_width, half_height])
        pulls = centre_pulls / rgb_weights.clamp_min(1e-6)[:, None, None] * half
        norms = torch.where(radii > 0, pulls.norm(dim=-1), 0.0)
        total += torch.where(good, torch.nan_to_num(norms, posinf=0.0).sum(0), 0.0)
        seen += torch.where(good, (radii > 0).sum(0).float(), 0.0)
        ages += good
        progress = min(1.0, int(state[self.place("FIRST_STEP")] + state[self.place("ROW")]) / means_steps)
        rates = means_rate * math.exp(fall * progress), quats_rate, scales_rate, logits_rate, colours_rate
        for (value, pull, first, second), rate in zip(parameters, rates, strict=True):
            if not rate:
                continue
            if value is logits:
                p = value.sigmoid()
                pull = pull - entropy / count * value * p * (1 - p)
            shape = (-1,) + (1,) * (value.ndim - 1)
            kept = good.reshape(shape)
            c = self.constants
            correct1, correct2 = (1 - c[f"BETA{k}"] ** ages.double().reshape(shape) for k in (1, 2))
            first.copy_(torch.where(kept, first + c["SHARE1"] * (pull - first), first))
            second.copy_(torch.where(kept, second * c["BETA2"] + c["SHARE2"] * pull.square(), second))
            step = rate * (first / correct1) / ((second / correct2).sqrt() + c["EPS"])
            value.copy_(torch.where(kept, value - step, value))
        scales = parameters[2][0]
        scales.copy_(torch.where(good[:, None], scales.clamp_max(largest), scales))
        longest = scales.amax(1, keepdim=True)
        scales.copy_(torch.where(good[:, None], torch.maximum(scales, longest - log_ratio), scales))
