"""Attention of the nodes of one row over that row's cache, each query's result independent of its neighbours.

How (CPU): query rows (nodes x heads that share a key head) are cut into tiles of TILE, each tile its own batch entry of
torch's fused kernel, and the cache is seen in whole blocks of 512 slots, which is the kernel's own step. So every
matrix product has one fixed shape, blocks are combined in one fixed order, and a masked slot adds exactly nothing:
the bits depend on neither the number of nodes, nor the tree, nor the padded length, nor the number of threads. Shorter
steps at the end of the cache, or tiles that are no multiple of 8 (a thread's scratch memory then starts off a cache
line), were measured to change the last bit. `attend_plain` is the slow twin and the way for soft-capped scores.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

TILE = 8


def attend(
    query: Float[Tensor, "n H HD"],
    keys: Float[Tensor, "T KH HD"],
    values: Float[Tensor, "T KH HD"],
    mask: Float[Tensor, "tiles 1 tile T"],
    scale: float,
    softcap: float | None = None,
) -> Float[Tensor, "n H HD"]:
    """What each node reads from the cache, in the dtype of the cache. mask: see `tile_mask`; 0 or -inf."""
    if softcap is not None:
        return attend_plain(query, keys, values, mask, scale, softcap)
    num_nodes, num_heads, head_size = query.shape
    tiles = _tile(query, keys.shape[1], mask.shape[0], keys.dtype)
    shape = (mask.shape[0], -1, -1, -1)
    out = _fused(tiles, keys.transpose(0, 1).expand(shape), values.transpose(0, 1).expand(shape), mask, scale)
    return _untile(out, num_nodes, num_heads, head_size)


def attend_plain(
    query: Float[Tensor, "n H HD"],
    keys: Float[Tensor, "T KH HD"],
    values: Float[Tensor, "T KH HD"],
    mask: Float[Tensor, "tiles 1 tile T"],
    scale: float,
    softcap: float | None = None,
) -> Float[Tensor, "n H HD"]:
    """The definition: softmax(q k / scale, soft-capped if asked) v."""
    tiles = _tile(query, keys.shape[1], mask.shape[0], keys.dtype)
    scores = tiles @ keys.permute(1, 2, 0) * scale  # (tiles, KH, TILE, T)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    return _untile(torch.softmax(scores + mask, -1) @ values.transpose(0, 1), *query.shape)


def tile_mask(allowed: Tensor, group: int, dtype: torch.dtype) -> Float[Tensor, "tiles 1 tile T"]:
    """Additive mask of all tiles of a row from allowed (n, T); padding queries may see everything and are dropped."""
    num_queries = allowed.shape[0] * group
    num_tiles = -(-num_queries // TILE)
    mask = torch.zeros(num_tiles * TILE, allowed.shape[1], dtype=dtype, device=allowed.device)
    forbidden = ~allowed.repeat_interleave(group, 0) if group > 1 else ~allowed
    mask[:num_queries].masked_fill_(forbidden, float("-inf"))
    return mask.view(num_tiles, 1, TILE, -1)


def _tile(query: Tensor, key_heads: int, num_tiles: int, dtype: torch.dtype) -> Tensor:
    """(n, H, HD) -> (tiles, KH, TILE, HD); within a tile first the heads of a node that share a key head."""
    num_nodes, num_heads, head_size = query.shape
    group = num_heads // key_heads
    padded = torch.zeros(num_tiles * TILE, key_heads, head_size, dtype=dtype, device=query.device)
    grouped = query.view(num_nodes, key_heads, group, head_size).transpose(1, 2)  # (n, G, KH, HD)
    padded[: num_nodes * group].view(num_nodes, group, key_heads, head_size).copy_(grouped)
    return padded.view(num_tiles, TILE, key_heads, head_size).transpose(1, 2)


def _untile(out: Tensor, num_nodes: int, num_heads: int, head_size: int) -> Tensor:
    """(tiles, KH, TILE, HD) -> (n, H, HD)."""
    key_heads = out.shape[1]
    group = num_heads // key_heads
    rows = out.transpose(1, 2).reshape(-1, key_heads, head_size)[: num_nodes * group]
    grouped = rows.view(num_nodes, group, key_heads, head_size).transpose(1, 2)  # (n, KH, G, HD)
    return grouped.reshape(num_nodes, num_heads, head_size)


def _fused(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    if query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    # Named, because torch would otherwise be free to choose another kernel for some shapes.
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(query, keys, values, 0.0, False, attn_mask=mask, scale=scale)[0]
