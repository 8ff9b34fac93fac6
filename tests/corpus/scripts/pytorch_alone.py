"""No model of Keras at all."""

import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(10):
    optimizer.zero_grad()
    loss = net(torch.rand(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
