"""Scenes with known truth, and the noise that instruments add to them."""

from sigmacube.synthetic.landscape import scene
from sigmacube.synthetic.noise import add_noise
from sigmacube.synthetic.textures import fractal_texture, rare_materials, smooth_fields

__all__ = ["add_noise", "fractal_texture", "rare_materials", "scene", "smooth_fields"]
