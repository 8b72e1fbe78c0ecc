"""One call of each op that some autocast list or ampkit policy names.

An entry is (expression, shape of a, of b, of c). The expression is TorchScript,
and eager Python with `aten` for torch.ops.aten. A shape may be ("spd", n): a
symmetric positive definite matrix. Complex results are viewed as real, and of
several results the one that floats is taken.
"""

import torch

LONG = "torch.zeros([4], dtype=torch.long)"
SAME = [(4, 6), (4, 6)]


def unary(*names):
    return {name: (f"aten.{name.split('.')[0]}(a)", (4, 6)) for name in names}


def binary(*names):
    return {name: (f"aten.{name.split('.')[0]}(a, b)", *SAME) for name in names}


def complex_unary(*names, shape=(4, 6)):
    return {
        name: (f"torch.view_as_real(aten.{name}(a).resolve_conj())", shape)
        for name in names
    }


PRODUCTS = {
    "mm": ("aten.mm(a, b)", (4, 6), (6, 3)),
    "mv": ("aten.mv(a, b)", (4, 6), (6,)),
    "matmul": ("aten.matmul(a, b)", (2, 4, 6), (6, 3)),
    "bmm": ("aten.bmm(a, b)", (2, 4, 6), (2, 6, 3)),
    "baddbmm": ("aten.baddbmm(c, a, b)", (2, 4, 6), (2, 6, 3), (2, 4, 3)),
    "addmm": ("aten.addmm(c, a, b)", (4, 6), (6, 3), (3,)),
    "addmv": ("aten.addmv(c, a, b)", (4, 6), (6,), (4,)),
    "addr": ("aten.addr(c, a, b)", (4,), (6,), (4, 6)),
    "addbmm": ("aten.addbmm(c, a, b)", (2, 4, 6), (2, 6, 3), (4, 3)),
    "_addmm_activation": ("aten._addmm_activation(c, a, b)", (4, 6), (6, 3), (3,)),
    "chain_matmul": ("aten.chain_matmul([a, b])", (4, 6), (6, 3)),
    "linalg_multi_dot": ("aten.linalg_multi_dot([a, b])", (4, 6), (6, 3)),
    "linear": ("aten.linear(a, b, c)", (2, 4, 6), (3, 6), (3,)),
    "linalg_vecdot": ("aten.linalg_vecdot(a, b)", *SAME),
    "dot": ("aten.dot(a, b)", (6,), (6,)),
    "vdot": ("aten.vdot(a, b)", (6,), (6,)),
    "einsum": ("aten.einsum('ij,jk->ik', [a, b])", (4, 6), (6, 3)),
    "tensordot": ("aten.tensordot(a, b, [1], [0])", (4, 6), (6, 3)),
    "bilinear": ("aten.bilinear(a, b, c)", (4, 5), (4, 6), (3, 5, 6)),
    "conv1d": ("aten.conv1d(a, b, c)", (2, 3, 9), (4, 3, 3), (4,)),
    "conv1d.padding": ("aten.conv1d(a, b, c, [1], 'same')", (2, 3, 9), (4, 3, 3), (4,)),
    "conv2d": ("aten.conv2d(a, b, c)", (2, 3, 9, 9), (4, 3, 3, 3), (4,)),
    "conv2d.padding": (
        "aten.conv2d(a, b, c, [1, 1], 'same')",
        *((2, 3, 9, 9), (4, 3, 3, 3), (4,)),
    ),
    "conv3d": ("aten.conv3d(a, b)", (1, 2, 5, 5, 5), (3, 2, 3, 3, 3)),
    "conv3d.padding": (
        "aten.conv3d(a, b, None, [1, 1, 1], 'same')",
        *((1, 2, 5, 5, 5), (3, 2, 3, 3, 3)),
    ),
    "conv_tbc": ("aten.conv_tbc(a, b, c)", (5, 2, 3), (3, 3, 4), (4,)),
    "conv_transpose1d": ("aten.conv_transpose1d(a, b)", (2, 3, 5), (3, 4, 3)),
    "conv_transpose2d.input": (
        "aten.conv_transpose2d(a, b)",
        *((2, 3, 5, 5), (3, 4, 3, 3)),
    ),
    "conv_transpose3d.input": (
        "aten.conv_transpose3d(a, b)",
        *((1, 2, 4, 4, 4), (2, 3, 3, 3, 3)),
    ),
    "convolution": (
        "aten.convolution(a, b, c, [1], [0], [1], False, [0], 1)",
        *((2, 3, 9), (4, 3, 3), (4,)),
    ),
    "_convolution": (
        "aten._convolution(a, b, c, [1], [0], [1], False, [0], 1, False, False,"
        " False, False)",
        *((2, 3, 9), (4, 3, 3), (4,)),
    ),
    "_convolution.deprecated": (
        "aten._convolution(a, b, c, [1], [0], [1], False, [0], 1, False, False, False)",
        *((2, 3, 9), (4, 3, 3), (4,)),
    ),
    "prelu": ("aten.prelu(a, b)", (4, 6), (1,)),
    "scaled_dot_product_attention": (
        "aten.scaled_dot_product_attention(a, b, c)",
        *((1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)),
    ),
    "_native_multi_head_attention": (
        "aten._native_multi_head_attention(a, a, a, 4, 2, b, b.select(1, 0), c,"
        " c.select(1, 0))[0]",
        *((1, 3, 4), (12, 4), (4, 4)),
    ),
    "gru_cell": ("aten.gru_cell(a, b, c, c)", (2, 4), (2, 4), (12, 4)),
    "rnn_tanh_cell": ("aten.rnn_tanh_cell(a, b, c, c)", (2, 4), (2, 4), (4, 4)),
    "rnn_relu_cell": ("aten.rnn_relu_cell(a, b, c, c)", (2, 4), (2, 4), (4, 4)),
    "lstm_cell": ("aten.lstm_cell(a, [b, b], c, c)[0]", (2, 4), (2, 4), (16, 4)),
}

NORMS = {
    "batch_norm": (
        "aten.batch_norm(a, b, c, None, None, True, 0.1, 1e-5, False)",
        *((4, 6), (6,), (6,)),
    ),
    "instance_norm": (
        "aten.instance_norm(a, b, c, None, None, True, 0.1, 1e-5, False)",
        *((2, 3, 8), (3,), (3,)),
    ),
    "layer_norm": ("aten.layer_norm(a, [6], b, c)", (4, 6), (6,), (6,)),
    "native_layer_norm": (
        "aten.native_layer_norm(a, [6], b, c, 1e-5)[0]",
        *((4, 6), (6,), (6,)),
    ),
    "group_norm": ("aten.group_norm(a, 2, b, c)", (4, 6, 3), (6,), (6,)),
    "rms_norm": ("aten.rms_norm(a, [6], b)", (4, 6), (6,)),
}

LOSSES = {
    **binary("l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "kl_div"),
    **binary("binary_cross_entropy_with_logits"),
    "binary_cross_entropy": ("aten.binary_cross_entropy(a.sigmoid(), b.sigmoid())", *SAME),
    "poisson_nll_loss": ("aten.poisson_nll_loss(a, b, True, False, 1e-8, 1)", *SAME),
    "hinge_embedding_loss": ("aten.hinge_embedding_loss(a, b.sign())", *SAME),
    "soft_margin_loss": ("aten.soft_margin_loss(a, b.sign())", *SAME),
    "margin_ranking_loss": ("aten.margin_ranking_loss(a, b, c.sign())", *SAME, (4, 6)),
    "cosine_embedding_loss": ("aten.cosine_embedding_loss(a, b, c.sign())", *SAME, (4,)),
    "triplet_margin_loss": ("aten.triplet_margin_loss(a, b, c)", *SAME, (4, 6)),
    "multi_margin_loss": (f"aten.multi_margin_loss(a, {LONG})", (4, 6)),
    "multilabel_margin_loss": (
        "aten.multilabel_margin_loss(a, torch.zeros([4, 6], dtype=torch.long))",
        (4, 6),
    ),
    "multilabel_margin_loss_forward": (
        "aten.multilabel_margin_loss_forward(a,"
        " torch.zeros([4, 6], dtype=torch.long), 1)[0]",
        (4, 6),
    ),
    "cross_entropy_loss": (f"aten.cross_entropy_loss(a, {LONG})", (4, 6)),
    "nll_loss": (f"aten.nll_loss(a, {LONG})", (4, 6)),
    "nll_loss_nd": (f"aten.nll_loss_nd(a, {LONG})", (4, 6)),
    "nll_loss2d": (
        "aten.nll_loss2d(a, torch.zeros([2, 4, 4], dtype=torch.long))",
        (2, 3, 4, 4),
    ),
    "ctc_loss.IntList": (
        "aten.ctc_loss(a, torch.ones([2, 2], dtype=torch.long), [6, 6], [2, 2])",
        (6, 2, 4),
    ),
    "ctc_loss.Tensor": (
        "aten.ctc_loss(a, torch.ones([2, 2], dtype=torch.long),"
        " torch.full([2], 6, dtype=torch.long), torch.full([2], 2, dtype=torch.long))",
        (6, 2, 4),
    ),
}

POINTWISE = {
    **unary("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "reciprocal"),
    **unary("rsqrt", "softplus", "erfinv", "acos", "asin", "cosh", "sinh", "tan"),
    **binary("pow.Tensor_Tensor", "xlogy.Tensor", "atan2", "cosine_similarity"),
    "pow.Tensor_Scalar": ("aten.pow(a, 2)", (4, 6)),
    "pow.Scalar": ("aten.pow(2, a)", (4, 6)),
    "addcdiv": ("aten.addcdiv(a, b, c)", *SAME, (4, 6)),
    "addcmul": ("aten.addcmul(a, b, c)", *SAME, (4, 6)),
    "cross": ("aten.cross(a, b)", (4, 3), (4, 3)),
    "softmax.int": ("aten.softmax(a, -1)", (4, 6)),
    "log_softmax.int": ("aten.log_softmax(a, -1)", (4, 6)),
    "special_softmax": ("aten.special_softmax(a, -1)", (4, 6)),
    "special_log_softmax": ("aten.special_log_softmax(a, -1)", (4, 6)),
    "cat": ("aten.cat([a, b])", *SAME),
    "stack": ("aten.stack([a, b])", *SAME),
    "index_copy": ("aten.index_copy(a, 0, torch.arange(2), b)", (4, 6), (2, 6)),
    "index_put": ("aten.index_put(a, [torch.arange(2)], b)", (4, 6), (2, 6)),
    "scatter_add": (
        "aten.scatter_add(a, 0, torch.zeros([4, 6], dtype=torch.long), b)",
        *SAME,
    ),
    "fake_quantize_per_tensor_affine": (
        "aten.fake_quantize_per_tensor_affine(a, 0.1, 0, -128, 127)",
        (4, 6),
    ),
}

REDUCTIONS = {
    **unary("sum", "mean", "prod", "frobenius_norm", "pdist"),
    **{
        name: (f"aten.{name.split('.')[0]}(a, {rest})", (4, 6))
        for name, rest in {
            "sum.dim_IntList": "[0]",
            "mean.dim": "[0]",
            "prod.dim_int": "0",
            "cumsum": "0",
            "cumprod": "0",
            "logcumsumexp": "0",
            "logsumexp": "[0]",
            "var": "True",
            "std": "True",
            "var.dim": "[0], True",
            "std.dim": "[0], True",
            "var.correction": "[0], correction=1",
            "std.correction": "[0], correction=1",
            "norm.Scalar": "2",
            "norm.ScalarOpt_dim": "2, [0]",
            "frobenius_norm.dim": "[0]",
            "nuclear_norm.dim": "[0, 1]",
            "linalg_vector_norm": "2",
            "linalg_matrix_norm": "2",
            "linalg_matrix_norm.str_ord": "'fro'",
            "renorm": "2, 0, 1",
        }.items()
    },
    "var_mean.correction": ("aten.var_mean(a, [0], correction=1)[0]", (4, 6)),
    "std_mean.correction": ("aten.std_mean(a, [0], correction=1)[0]", (4, 6)),
    "nuclear_norm": ("aten.nuclear_norm(a)", (4, 6)),
    "dist": ("aten.dist(a, b)", *SAME),
    "cdist": ("aten.cdist(a, b)", (4, 6), (5, 6)),
    "trace": ("aten.trace(a)", (4, 4)),
    "quantile": ("aten.quantile(a, b.sigmoid())", (4, 6), (2,)),
    "nanquantile": ("aten.nanquantile(a, b.sigmoid())", (4, 6), (2,)),
    "quantile.scalar": ("aten.quantile(a, 0.5)", (4, 6)),
    "nanquantile.scalar": ("aten.nanquantile(a, 0.5)", (4, 6)),
}
del REDUCTIONS["frobenius_norm"]  # has no form without dim

SPATIAL = {
    "avg_pool3d": ("aten.avg_pool3d(a, [2, 2, 2])", (1, 2, 4, 4, 4)),
    "max_pool3d": ("aten.max_pool3d(a, [2, 2, 2])", (1, 2, 4, 4, 4)),
    "adaptive_avg_pool3d": ("aten.adaptive_avg_pool3d(a, [2, 2, 2])", (1, 2, 4, 4, 4)),
    "adaptive_max_pool3d": ("aten.adaptive_max_pool3d(a, [2, 2, 2])[0]", (1, 2, 4, 4, 4)),
    "fractional_max_pool2d": (
        "aten.fractional_max_pool2d(a, [2, 2], [2, 2], b.sigmoid())[0]",
        *((1, 2, 6, 6), (1, 2, 2)),
    ),
    "fractional_max_pool3d": (
        "aten.fractional_max_pool3d(a, [2, 2, 2], [2, 2, 2], b.sigmoid())[0]",
        *((1, 2, 6, 6, 6), (1, 2, 3)),
    ),
    "max_unpool2d": (
        "aten.max_unpool2d(a, torch.arange(4).reshape([1, 1, 2, 2]), [4, 4])",
        (1, 1, 2, 2),
    ),
    "max_unpool3d": (
        "aten.max_unpool3d(a, torch.arange(8).reshape([1, 1, 2, 2, 2]), [4, 4, 4],"
        " [2, 2, 2], [0, 0, 0])",
        (1, 1, 2, 2, 2),
    ),
    "reflection_pad1d": ("aten.reflection_pad1d(a, [1, 1])", (1, 2, 4)),
    "reflection_pad2d": ("aten.reflection_pad2d(a, [1, 1, 1, 1])", (1, 2, 4, 4)),
    "replication_pad1d": ("aten.replication_pad1d(a, [1, 1])", (1, 2, 4)),
    "replication_pad2d": ("aten.replication_pad2d(a, [1, 1, 1, 1])", (1, 2, 4, 4)),
    "replication_pad3d": (
        "aten.replication_pad3d(a, [1, 1, 1, 1, 1, 1])",
        (1, 2, 4, 4, 4),
    ),
    **{
        name: (f"aten.{name}(a, b, 0, 0, False)", (1, 1, 4, 4), (1, 4, 4, 2))
        for name in ("grid_sampler", "grid_sampler_2d", "_grid_sampler_2d_cpu_fallback")
    },
    "grid_sampler_3d": (
        "aten.grid_sampler_3d(a, b, 0, 0, False)",
        *((1, 1, 3, 3, 3), (1, 2, 2, 2, 3)),
    ),
    "upsample_nearest1d": ("aten.upsample_nearest1d(a, [8])", (1, 2, 4)),
    "upsample_nearest2d": ("aten.upsample_nearest2d(a, [8, 8])", (1, 2, 4, 4)),
    "upsample_nearest3d": ("aten.upsample_nearest3d(a, [8, 8, 8])", (1, 2, 4, 4, 4)),
    "upsample_linear1d": ("aten.upsample_linear1d(a, [8], False)", (1, 2, 4)),
    "upsample_bilinear2d": ("aten.upsample_bilinear2d(a, [8, 8], False)", (1, 2, 4, 4)),
    "upsample_bicubic2d": ("aten.upsample_bicubic2d(a, [8, 8], False)", (1, 2, 4, 4)),
    "upsample_trilinear3d": (
        "aten.upsample_trilinear3d(a, [8, 8, 8], False)",
        (1, 2, 4, 4, 4),
    ),
    "_upsample_bilinear2d_aa": (
        "aten._upsample_bilinear2d_aa(a, [8, 8], False)",
        (1, 2, 4, 4),
    ),
    "_upsample_bicubic2d_aa": (
        "aten._upsample_bicubic2d_aa(a, [8, 8], False)",
        (1, 2, 4, 4),
    ),
    "_upsample_nearest_exact1d": ("aten._upsample_nearest_exact1d(a, [8])", (1, 2, 4)),
    "_upsample_nearest_exact2d": (
        "aten._upsample_nearest_exact2d(a, [8, 8])",
        (1, 2, 4, 4),
    ),
    "_upsample_nearest_exact3d": (
        "aten._upsample_nearest_exact3d(a, [8, 8, 8])",
        (1, 2, 4, 4, 4),
    ),
}

FFT = ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "rfft", "rfft2", "rfftn", "ihfft")
SPECTRAL = {
    **complex_unary(*(f"fft_{name}" for name in FFT)),
    **unary("fft_hfft", "fft_irfft", "fft_irfft2", "fft_irfftn"),
    "stft": (
        "torch.view_as_real(aten.stft(a, 16, 4, 16, None, False, True, True))",
        (1, 64),
    ),
    "stft.center": (
        "torch.view_as_real(aten.stft(a, 16, 4, 16, None, True, 'reflect', False,"
        " True, True))",
        (1, 64),
    ),
    "polar": ("torch.view_as_real(aten.polar(a, b))", *SAME),
    "view_as_complex": ("torch.view_as_real(aten.view_as_complex(a))", (3, 2)),
}

SPD = ("spd", 4)
LINALG = {
    **{
        name: (f"aten.{name}(a)", SPD)
        for name in ("inverse", "linalg_inv", "linalg_cond", "pinverse", "cholesky")
    },
    **{
        name: (f"aten.{name}(a)", SPD)
        for name in ("linalg_cholesky", "linalg_eigvalsh", "linalg_svdvals")
    },
    **{
        name: (f"aten.{name}(a)[0]", SPD)
        for name in (
            *("linalg_cholesky_ex", "linalg_inv_ex", "linalg_eigh", "_lu_with_info"),
            *("linalg_qr", "qr", "geqrf"),
        )
    },
    "svd": ("aten.svd(a)[1]", SPD),
    "linalg_svd": ("aten.linalg_svd(a)[1]", SPD),
    "linalg_eig": ("torch.view_as_real(aten.linalg_eig(a)[0])", SPD),
    "linalg_eigvals": ("torch.view_as_real(aten.linalg_eigvals(a))", SPD),
    "linalg_cond.p_str": ("aten.linalg_cond(a, 'fro')", SPD),
    "linalg_matrix_rank": ("aten.linalg_matrix_rank(a, 0.1)", SPD),
    "linalg_matrix_rank.atol_rtol_float": (
        "aten.linalg_matrix_rank(a, atol=0.1, rtol=0.1)",
        SPD,
    ),
    "linalg_matrix_rank.atol_rtol_tensor": (
        "aten.linalg_matrix_rank(a, atol=b, rtol=b)",
        *(SPD, ()),
    ),
    "linalg_matrix_rank.tol_tensor": ("aten.linalg_matrix_rank(a, b)", SPD, ()),
    "cholesky_inverse": ("aten.cholesky_inverse(a)", SPD),
    "cholesky_solve": ("aten.cholesky_solve(b, a)", SPD, (4, 2)),
    "linalg_solve": ("aten.linalg_solve(a, b)", SPD, (4, 2)),
    "linalg_lstsq": ("aten.linalg_lstsq(a, b)[0]", SPD, (4, 2)),
    "triangular_solve": ("aten.triangular_solve(b, a)[0]", SPD, (4, 2)),
    "lu_solve": (
        "aten.lu_solve(b, a, torch.arange(1, 5, dtype=torch.int32))",
        *(SPD, (4, 2)),
    ),
    "linalg_householder_product": (
        "aten.linalg_householder_product(a, b)",
        *((4, 3), (3,)),
    ),
    "orgqr": ("aten.orgqr(a, b)", (4, 3), (3,)),
    "ormqr": ("aten.ormqr(a, b, c)", (4, 4), (4,), (4, 4)),
    "linalg_tensorinv": ("aten.linalg_tensorinv(a, 2)", (2, 3, 6)),
    "linalg_tensorsolve": ("aten.linalg_tensorsolve(a, b)", (2, 3, 6), (2, 3)),
}

OPS = {
    **PRODUCTS,
    **NORMS,
    **LOSSES,
    **POINTWISE,
    **REDUCTIONS,
    **SPATIAL,
    **SPECTRAL,
    **LINALG,
}
NAMES = "abc"


def shapes_of(op):
    return OPS[op][1:]


def inputs_of(op, dtype=torch.float32):
    """The same numbers every time; unused places hold one element."""
    generator = torch.Generator().manual_seed(7)
    tensors = []
    for shape in shapes_of(op):
        if shape and shape[0] == "spd":
            square = torch.randn([shape[1]] * 2, generator=generator)
            tensor = square @ square.T + torch.eye(shape[1])
        else:
            tensor = torch.randn(shape, generator=generator)
        tensors.append(tensor.to(dtype))
    return tensors + [torch.zeros(1)] * (3 - len(tensors))


def call(op, inputs):
    """The eager result."""
    names = {"torch": torch, "aten": torch.ops.aten, **dict(zip(NAMES, inputs))}
    return eval(OPS[op][0], names)


def script(op):
    """The body of a TorchScript method with the arguments a, b, c."""
    return OPS[op][0].replace("aten.", "torch.ops.aten.")
