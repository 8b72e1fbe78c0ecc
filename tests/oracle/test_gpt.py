"""The zoo's GPT against GPT2LMHeadModel of Hugging Face's transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = dict(vocabulary=61, width=32, layers=3, heads=4, length=24)
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def make_model(tied_head):
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=SIZES["vocabulary"],
        n_embd=SIZES["width"],
        n_layer=SIZES["layers"],
        n_head=SIZES["heads"],
        n_positions=SIZES["length"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=tied_head,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    # Larger than the initial ones, so that attention is not almost uniform.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.train()


@pytest.mark.parametrize("tied_head", [True, False])
def test_logits_loss_and_gradients_are_those_of_transformers(
    tied_head, driver, tmp_path
):
    model = make_model(tied_head)
    names = ("options", "weights", "tokens", "output")
    options, weights, tokens_file, output = (tmp_path / name for name in names)
    options.write_text(json.dumps(SIZES | {"tied_head": tied_head}))
    save_file({k: v.clone() for k, v in model.state_dict().items()}, weights)
    tokens = torch.randint(SIZES["vocabulary"], (4, SIZES["length"]))
    save_file({"tokens": tokens}, tokens_file)
    driver("gpt", options, weights, tokens_file, output)
    ours = load_file(output)

    theirs = model(tokens, labels=tokens)
    theirs.loss.backward()
    expected = {"logits": theirs.logits.detach(), "loss": theirs.loss.detach()}
    for name, parameter in model.named_parameters():
        grad = parameter.grad.t() if name.endswith(CONV1D) else parameter.grad
        expected["grad." + name.removeprefix("transformer.")] = grad
    assert set(ours) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(
            ours[name], value, rtol=1e-5, atol=1e-5, msg=lambda m: f"{name}: {m}"
        )
    # Worth comparing: nothing is lost in the absolute tolerance.
    assert all(value.abs().max() > 1e-3 for value in expected.values())
